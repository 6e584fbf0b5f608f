use super::nginx::{Expected, FILE};
use crate::model::{Cancel, Failure};
use host::Namespace;
use perf::PerfError;
use perf::download::{Download, Downloaded};
use probe::tcp::TcpSocket;
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::{Duration, Instant};
use units::{Span, Time};

/// A client that fetches the file over one path repeatedly.
#[derive(Debug)]
pub(super) struct Client<'a> {
    pub(super) host: Namespace,
    pub(super) server_host: &'a Namespace,
    pub(super) server: SocketAddr,
    pub(super) expected: Expected,
    /// The congestion control that the server's connections must run.
    pub(super) congestion: Option<&'a str>,
    pub(super) cpus: &'a [usize],
    pub(super) patience: Duration,
    pub(super) cancel: &'a Cancel,
}

/// The result of one attempt to download the file.
#[derive(Debug)]
pub(super) enum Attempt {
    Came {
        window: Range<Time>,
        downloaded: Downloaded,
        /// The statistics that the server's kernel has of the connection, after the last byte was
        /// acknowledged.
        server: Option<Box<TcpSocket>>,
    },
    Failed {
        window: Range<Time>,
        reason: String,
    },
}

impl Attempt {
    pub(super) fn window(&self) -> Range<Time> {
        let (Self::Came { window, .. } | Self::Failed { window, .. }) = self;
        window.clone()
    }

    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Came { downloaded, .. } => downloaded.body.count(),
            Self::Failed { .. } => 0,
        }
    }
}

impl Client<'_> {
    /// Downloads the file at least once, and repeats until `duration` is over.
    pub(super) fn run(&self, duration: Span) -> Result<Vec<Attempt>, Failure> {
        let begun = Instant::now();
        let mut attempts = Vec::new();
        loop {
            attempts.push(self.fetch()?);
            if begun.elapsed() >= duration.as_duration() {
                return Ok(attempts);
            }
        }
    }

    fn fetch(&self) -> Result<Attempt, Failure> {
        let download = Download {
            from: self.server,
            host: self.server.ip().to_string(),
            path: format!("/{FILE}"),
            patience: self.patience,
            silence: self.patience,
        };
        let begun = probe::clock::now();
        let came = self.host.run(|| {
            host::pin_to(self.cpus)?;
            Ok(download.run(|| self.cancel.is_cancelled()))
        })?;
        let window = begun..probe::clock::now();
        let (downloaded, socket) = match came {
            Ok(came) => came,
            Err(PerfError::Interrupted) => return Err(Failure::Interrupted),
            Err(error) => return Ok(Attempt::Failed { window, reason: error.to_string() }),
        };
        let server = self.close(socket)?;
        let Expected { size, checksum } = self.expected;
        let reason = match () {
            () if downloaded.status != 200 => format!("nginx answered {}", downloaded.status),
            () if downloaded.body != size => format!("got {} instead of {size}", downloaded.body),
            () if downloaded.checksum != checksum => "the received file is damaged".to_owned(),
            () => return Ok(Attempt::Came { window, downloaded, server }),
        };
        Ok(Attempt::Failed { window, reason })
    }

    /// Waits until the server knows that all data has arrived, and reads the server's statistics.
    /// Then closes the connection and waits until the server has released the socket. Only then has
    /// the server stored the metrics of the path, and no packet of this connection can reach the
    /// next connection.
    fn close(&self, socket: TcpStream) -> Result<Option<Box<TcpSocket>>, Failure> {
        let local = socket.local_addr().map_err(|error| Failure::io("closing", &error))?;
        let server = self.server;
        let ask = || probe::tcp::connection(server, local);
        let told = self.server_host.run(|| {
            let deadline = Instant::now() + SETTLED_WITHIN;
            Ok(loop {
                let told = ask();
                let unacked = |socket: &TcpSocket| socket.info.as_ref()?.unacked;
                match &told {
                    Ok(Some(socket)) if unacked(socket) != Some(0) => {}
                    _ => break told,
                }
                if Instant::now() > deadline {
                    break told;
                }
                std::thread::sleep(BETWEEN_LOOKS);
            })
        })??;
        if let (Some(wanted), Some(told)) = (self.congestion, &told) {
            let has = told.congestion_control.as_deref().unwrap_or("(unknown)");
            if has != wanted {
                let text = format!("the server used {has} though {wanted} was chosen");
                return Err(Failure::Workload(text));
            }
        }
        drop(socket);
        self.server_host.run(|| {
            let deadline = Instant::now() + SETTLED_WITHIN;
            while Instant::now() < deadline && matches!(ask(), Ok(Some(_))) {
                std::thread::sleep(BETWEEN_LOOKS);
            }
            Ok(())
        })?;
        Ok(told.map(Box::new))
    }
}

const SETTLED_WITHIN: Duration = Duration::from_secs(2);
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
