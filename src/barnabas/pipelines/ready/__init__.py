"""The pipelines that come with Barnabas. Each is an ordinary file: copy it and change it."""
