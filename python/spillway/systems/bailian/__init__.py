"""The traces of Alibaba Bailian."""
