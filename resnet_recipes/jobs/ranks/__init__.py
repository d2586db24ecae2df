"""Start and join the processes of a run, watch them, and pass requests to stop to them."""
