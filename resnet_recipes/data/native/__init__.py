"""The C++ decoder: crops of JPEGs and .beton samples, in threads without the interpreter."""
