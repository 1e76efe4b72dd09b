"""The traces of WEKA's conversations."""
