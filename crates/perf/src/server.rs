//! The server: many clients at once, each within its limits.
//!
//! One thread is the door: it takes every connection and datagram that comes to the port, finds out
//! whose it is, and never waits for anybody. Each client is served by a thread of its own, and each of
//! its streams by another; whatever one client does or leaves undone, the others go on.

mod admission;
mod datagrams;
mod door;
mod guests;
mod listen;
mod offer;
mod refusal;
mod streams;
mod threshold;
mod transcript;
mod visit;

use crate::PerfError;
use crate::accounts::Gate;
use crate::event::{Audience, Listening, Stop};
use crate::options::ServerOptions;
use door::Door;
use guests::Guests;
use listen::Sockets;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;
use threshold::Named;
use visit::{House, Visit};

/// A server that holds its port, and does not serve yet.
#[derive(Debug)]
pub struct Server {
    options: ServerOptions,
    sockets: Sockets,
    output: OutputForm,
}

/// In which form clients get this server's output (`--get-server-output`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OutputForm {
    #[default]
    Text,
    Json,
}

/// A client that came, before anything is known of its test.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// 1 for the first.
    pub number: u64,
    pub address: SocketAddr,
}

/// What a server did until it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Summary {
    /// Tests that came to their end.
    pub completed: u64,
    pub failed: u64,
    /// Clients sent away because enough others were served.
    pub busy: u64,
    /// Connections that never said whose they are, or that no account lets in.
    pub dismissed: u64,
}

impl Server {
    /// Takes the port, for TCP and UDP.
    pub fn bind(options: &ServerOptions) -> Result<Self, PerfError> {
        crate::stream::may_run_on(options.affinity)?;
        let sockets = Sockets::open(options)?;
        Ok(Self { options: options.clone(), sockets, output: OutputForm::default() })
    }

    #[must_use]
    pub fn output_form(mut self, output: OutputForm) -> Self {
        self.output = output;
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.sockets.address
    }

    /// For the audience of the server itself, before [`Self::run`].
    pub fn listening(&self) -> Listening {
        Listening { address: self.address() }
    }

    /// Serves until `stop` is called; one test with `one_off`; until nobody came for `idle_timeout`. Each
    /// client has an audience of its own, made when it comes and called from its thread.
    pub fn run<A>(&self, stop: &Stop, audience_for: A) -> Result<Summary, PerfError>
    where
        A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
    {
        let guests = Arc::new(Guests::default());
        let gate = self.options.accounts.as_ref().map(Gate::new);
        let house = House {
            options: &self.options,
            gate: gate.as_ref(),
            output: self.output,
            stop,
            port: self.address().port(),
        };
        // With one_off the server's end is also that of whoever else came.
        thread::scope(|scope| {
            let mut reception = Reception {
                house,
                scope,
                guests: Arc::clone(&guests),
                audience_for: &audience_for,
                visits: Vec::new(),
                ended: mpsc::channel(),
                summary: Summary::default(),
            };
            let served = reception.serve(&self.sockets, self.options.idle_timeout);
            let summary = reception.close();
            served.map(|()| summary)
        })
    }
}

/// Who comes in through the door is led to a thread of its own.
struct Reception<'scope, 'env, A> {
    house: House<'env>,
    scope: &'scope Scope<'scope, 'env>,
    guests: Arc<Guests>,
    audience_for: &'env A,
    visits: Vec<ScopedJoinHandle<'scope, ()>>,
    ended: (Sender<Outcome>, mpsc::Receiver<Outcome>),
    summary: Summary,
}

/// What became of a visit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Completed,
    Failed,
    /// It was told to try again later.
    Busy,
    /// It never said what it wants, or was not let in.
    Nothing,
}

impl<'scope, 'env, A> Reception<'scope, 'env, A>
where
    A: Fn(&Client) -> Box<dyn Audience + Send> + Sync,
{
    fn serve(
        &mut self,
        sockets: &Sockets,
        idle_timeout: Option<std::time::Duration>,
    ) -> Result<(), PerfError> {
        let mut door = Door::new(sockets, self.house.options, Arc::clone(&self.guests));
        let mut idle_since = Instant::now();
        while !self.house.stop.is_called() {
            for named in door.look(&mut self.summary)? {
                self.receive(named);
            }
            if self.reap() && self.house.options.one_off {
                return Ok(());
            }
            if !self.visits.is_empty() {
                idle_since = Instant::now();
            }
            if idle_timeout.is_some_and(|timeout| idle_since.elapsed() >= timeout) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn receive(&mut self, named: Named) {
        let Named { cookie, socket, from, .. } = named;
        if let Err(full) = self.guests.room(from, self.house.most_tests()) {
            self.turn_away(socket, from, full.reason());
            return;
        }
        let Ok(local) = socket.local_addr() else { return };
        let most_silent = self.house.options.limits.unnamed;
        let seat = self.guests.seat(cookie, &socket, (from, local), most_silent);
        let client = Client { number: seat.number(), address: plain(from) };
        let (house, audience_for, ended) = (self.house, self.audience_for, self.ended.0.clone());
        // A second handle, in case there is no thread to be had.
        let spare = socket.try_clone();
        let visit = thread::Builder::new().name(format!("client {}", client.number)).spawn_scoped(
            self.scope,
            move || {
                let audience = audience_for(&client);
                let outcome = Visit::new(house, seat, cookie, client).receive(socket, audience);
                // Nobody listens any more when the server ends.
                let _ = ended.send(outcome);
            },
        );
        match visit {
            Ok(visit) => self.visits.push(visit),
            Err(error) => {
                if let Ok(socket) = spare {
                    self.turn_away(socket, from, &format!("there is no thread for it: {error}"));
                }
            }
        }
    }

    fn turn_away(&mut self, socket: std::net::TcpStream, from: SocketAddr, why: &str) {
        tracing::warn!("{} was told to try again later: {why}", plain(from));
        self.summary.busy += 1;
        door::deny(socket);
    }

    /// Takes note of the visits that ended; true if one was a test.
    fn reap(&mut self) -> bool {
        self.visits.retain(|visit| !visit.is_finished());
        let mut tests = false;
        while let Ok(outcome) = self.ended.1.try_recv() {
            self.summary.note(outcome);
            tests |= matches!(outcome, Outcome::Completed | Outcome::Failed);
        }
        tests
    }

    /// Waits for those who are still served, which a call to stop has told to end.
    fn close(mut self) -> Summary {
        for visit in self.visits.drain(..) {
            // A visit that panicked has ended like any other.
            let _ = visit.join();
        }
        self.reap();
        self.summary
    }
}

impl Summary {
    fn note(&mut self, outcome: Outcome) {
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Busy => self.busy += 1,
            Outcome::Nothing => self.dismissed += 1,
        }
    }
}

/// IPv4 as people write it, on a socket that takes both.
fn plain(mut address: SocketAddr) -> SocketAddr {
    address.set_ip(address.ip().to_canonical());
    address
}
