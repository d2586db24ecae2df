"""The decoder in C++: crops of JPEGs and of .beton samples, by threads that need no interpreter."""
