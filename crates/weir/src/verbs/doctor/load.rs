use crate::exit::Ending;
use anyhow::Context;
use clap::{Args, Subcommand};
use lab::load::{Receiver, Sender};
use std::net::SocketAddr;
use std::path::PathBuf;
use units::{Bytes, Rate, Span};

/// Ends of connections with a known behaviour, for the faults of `weir lab run faults`
#[derive(Debug, Subcommand)]
pub(crate) enum Load {
    /// Send until the time is over
    Send(Send),
    /// Receive until the time is over
    Receive(Receive),
}

#[derive(Debug, Args)]
pub(crate) struct Send {
    to: SocketAddr,
    /// Bytes of each write
    #[arg(long, default_value = "64KiB")]
    chunk: Bytes,
    /// Time between two writes
    #[arg(long, default_value = "0s")]
    pause: Span,
    /// Write no faster than this
    #[arg(long)]
    rate: Option<Rate>,
    /// [default: $CONGESTION, or cubic]
    #[arg(short = 'C', long)]
    congestion: Option<String>,
    /// SO_SNDBUF
    #[arg(long)]
    buffer: Option<Bytes>,
    /// Divide each chunk into so many writes
    #[arg(long, default_value_t = 1)]
    parts: u32,
    /// Wait for one byte after each chunk
    #[arg(long)]
    asks: bool,
    #[arg(long)]
    udp: bool,
    /// Number of connections; only the last connection carries data
    #[arg(long, default_value_t = 1)]
    connections: u32,
    /// Open a new connection for each write
    #[arg(long)]
    reconnects: bool,
    /// Read each chunk from a file in this directory first, past the page cache
    #[arg(long, value_name = "DIRECTORY")]
    disk: Option<PathBuf>,
    #[arg(long, default_value = "60s")]
    time: Span,
}

#[derive(Debug, Args)]
pub(crate) struct Receive {
    at: SocketAddr,
    /// Bytes of each read
    #[arg(long, default_value = "64KiB")]
    chunk: Bytes,
    /// Time between two reads
    #[arg(long, default_value = "0s")]
    pause: Span,
    /// Read no faster than this
    #[arg(long)]
    rate: Option<Rate>,
    /// SO_RCVBUF
    #[arg(long)]
    buffer: Option<Bytes>,
    /// Answer each chunk with one byte
    #[arg(long)]
    answers: bool,
    #[arg(long)]
    udp: bool,
    #[arg(long)]
    backlog: Option<i32>,
    /// Leave all connections in the accept queue
    #[arg(long)]
    never_accepts: bool,
    #[arg(long)]
    never_reads: bool,
    /// RLIMIT_NOFILE
    #[arg(long)]
    descriptors: Option<u64>,
    #[arg(long, default_value = "60s")]
    time: Span,
}

fn usual_congestion() -> String {
    std::env::var("CONGESTION").unwrap_or_else(|_| "cubic".to_owned())
}

pub(crate) fn run(load: Load) -> anyhow::Result<Ending> {
    match load {
        Load::Send(it) => Sender {
            to: it.to,
            chunk: it.chunk,
            pause: it.pause,
            rate: it.rate,
            congestion: it.congestion.or_else(|| Some(usual_congestion())),
            buffer: it.buffer,
            parts: it.parts,
            asks: it.asks,
            udp: it.udp,
            connections: it.connections,
            reconnects: it.reconnects,
            disk: it.disk,
            time: it.time,
        }
        .run()
        .context("sending")?,
        Load::Receive(it) => Receiver {
            at: it.at,
            chunk: it.chunk,
            pause: it.pause,
            rate: it.rate,
            buffer: it.buffer,
            answers: it.answers,
            udp: it.udp,
            backlog: it.backlog,
            accepts: !it.never_accepts,
            reads: !it.never_reads,
            descriptors: it.descriptors,
            time: it.time,
        }
        .run()
        .context("receiving")?,
    }
    Ok(Ending::Fine)
}
