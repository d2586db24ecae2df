"""Images in a bucket or on a web server: fetched once per machine, checked, then read as usual."""
