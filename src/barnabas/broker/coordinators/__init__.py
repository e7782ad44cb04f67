"""Coordinators on this broker: where they are, their hands, how handlers ask them."""
