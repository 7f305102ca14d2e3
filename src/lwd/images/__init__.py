"""Images by name: folders, CIFAR-10, the embedded Fashion-MNIST, and pictures as files."""
