"""How good samples are: metrics of features, the networks that compute features, evaluations of image sets."""
