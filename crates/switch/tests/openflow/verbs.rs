//! The verbs of ovs-ofctl.
