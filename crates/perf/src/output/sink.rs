use crate::event::Stop;
use std::io::{self, Write};

/// The output of an audience. When the reader has gone, the sink writes nothing more and stops the
/// test, as SIGPIPE would have done. A test that the sink stopped did not fail.
#[derive(Debug)]
pub(super) struct Sink<W> {
    out: W,
    stop: Option<Stop>,
    trouble: Option<io::Error>,
}

impl<W: Write> Sink<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, stop: None, trouble: None }
    }

    pub(super) fn stops(&mut self, stop: Stop) {
        self.stop = Some(stop);
    }

    pub(super) fn write(&mut self, text: &str) {
        if self.trouble.is_some() {
            return;
        }
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        if let Err(error) = written {
            self.trouble = Some(error);
            if let Some(stop) = &self.stop {
                stop.call();
            }
        }
    }

    /// True if the reader has gone.
    pub(super) fn is_abandoned(&self) -> bool {
        self.trouble.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Returns the write error, unless the reader has gone.
    pub(super) fn finish(self) -> io::Result<W> {
        match self.trouble {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(self.out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Broken(io::ErrorKind, usize);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            self.1 += 1;
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_output_pipe_stops_the_test_without_a_failure() {
        let stop = Stop::default();
        let mut sink = Sink::new(Broken(io::ErrorKind::BrokenPipe, 0));
        sink.stops(stop.clone());
        sink.write("one\n");
        sink.write("two\n");
        assert!(stop.is_called() && sink.is_abandoned());
        assert_eq!(sink.finish().unwrap().1, 1);
    }

    #[test]
    fn a_write_error_of_a_full_disk_is_reported() {
        let mut sink = Sink::new(Broken(io::ErrorKind::StorageFull, 0));
        sink.write("one\n");
        assert_eq!(sink.finish().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
