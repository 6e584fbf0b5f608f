use crate::AccelError;
use crate::object::with_libbpf_log;
use libbpf_rs::{Iter, Link};
use std::io::{ErrorKind, Read as _};

/// Runs the iterator over all its entries in the calling thread's namespaces; returns the program's
/// output.
pub(crate) fn read_iterator(what: &'static str, link: &Link) -> Result<Vec<u8>, AccelError> {
    let mut shown = with_libbpf_log(what, || Iter::new(link))?;
    let mut written = Vec::new();
    let mut piece = vec![0; PIECE];
    loop {
        match shown.read(&mut piece) {
            Ok(0) => return Ok(written),
            Ok(count) => written.extend_from_slice(&piece[..count]),
            // The kernel pauses after a million entries without output (kernel/bpf/bpf_iter.c).
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(source) => return Err(AccelError::OpenConnections { source }),
        }
    }
}

const PIECE: usize = 64 << 10;
