"""The C++ decoder: crops of JPEGs and .beton samples, in threads that run without the interpreter."""
