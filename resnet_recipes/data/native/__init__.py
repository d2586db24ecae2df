"""The C++ decoder: crops of JPEGs and .beton samples, made without the interpreter."""
