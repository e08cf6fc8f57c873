"""What is served and how it is written: resources, their definitions, admission, the verbs."""
