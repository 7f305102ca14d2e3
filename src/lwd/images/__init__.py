"""Images: folders, CIFAR-10, the embedded Fashion-MNIST, and sets of pictures as files."""
