"""A storage of encoded images, cropped into rows of a batch by the native engine or Python."""
