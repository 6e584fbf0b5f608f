//! Congestion control of ours in an unchanged Linux kernel: the C cores of `cc`, compiled to BPF.
