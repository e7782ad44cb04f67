"""The pipelines that come with Barnabas. Each is a file as anybody would write one: copy it and change it."""
