//! Rules as ovs-ofctl writes them: parser and printer.
