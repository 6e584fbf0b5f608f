//! A UDP proxy between the two ends. The proxy can lose, reorder, duplicate and corrupt packets,
//! drop all packets, change the clients' source ports, and replay recorded packets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::watch;

#[derive(Clone)]
pub struct Wire {
    pub address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// The packets per thousand that the proxy loses in each direction; the next two fields count
    /// reordered and duplicated packets.
    loss: AtomicU32,
    reorder: AtomicU32,
    duplicate: AtomicU32,
    /// The packets per thousand in which the proxy flips one bit.
    corrupt: AtomicU32,
    /// Whether the proxy drops all packets from clients; `mute` applies to packets from servers.
    deaf: AtomicBool,
    mute: AtomicBool,
    /// The recorded packets from clients; `None` while the proxy does not record.
    received: Mutex<Option<Vec<Vec<u8>>>>,
    /// A counter of moves. Each change of the counter moves every client to another source port.
    moved: watch::Sender<u32>,
    random: AtomicU64,
}

impl Wire {
    pub async fn to(server: SocketAddr) -> Self {
        let front = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let _ = socket2::SockRef::from(&*front).set_recv_buffer_size(4 << 20);
        let state = Arc::new(State {
            loss: AtomicU32::new(0),
            reorder: AtomicU32::new(0),
            duplicate: AtomicU32::new(0),
            corrupt: AtomicU32::new(0),
            deaf: AtomicBool::new(false),
            mute: AtomicBool::new(false),
            received: Mutex::new(None),
            moved: watch::Sender::new(0),
            random: AtomicU64::new(88_172_645_463_325_252),
        });
        let wire = Self { address: front.local_addr().unwrap(), state: Arc::clone(&state) };
        tokio::spawn(async move {
            let mut known: Vec<(SocketAddr, tokio::sync::mpsc::Sender<Vec<u8>>)> = Vec::new();
            let mut buffer = vec![0; 65_536];
            loop {
                let Ok((count, from)) = front.recv_from(&mut buffer).await else { continue };
                let packet = buffer[..count].to_vec();
                if let Some(received) = state.received.lock().unwrap().as_mut() {
                    received.push(packet.clone());
                }
                let place = known.iter().position(|(address, _)| *address == from);
                let place = place.unwrap_or_else(|| {
                    let (sender, receiver) = tokio::sync::mpsc::channel(4096);
                    let side = side(Arc::clone(&state), Arc::clone(&front), from, server, receiver);
                    tokio::spawn(side);
                    known.push((from, sender));
                    known.len() - 1
                });
                let _ = known[place].1.try_send(packet);
            }
        });
        wire
    }

    pub fn lose(&self, of_thousand: u32) {
        self.state.loss.store(of_thousand, Ordering::Relaxed);
    }

    pub fn reorder(&self, of_thousand: u32) {
        self.state.reorder.store(of_thousand, Ordering::Relaxed);
    }

    pub fn duplicate(&self, of_thousand: u32) {
        self.state.duplicate.store(of_thousand, Ordering::Relaxed);
    }

    pub fn corrupt(&self, of_thousand: u32) {
        self.state.corrupt.store(of_thousand, Ordering::Relaxed);
    }

    pub fn cut(&self, dead: bool) {
        self.cut_from_clients(dead);
        self.state.mute.store(dead, Ordering::Relaxed);
    }

    /// Cuts or restores the direction from clients to servers. Clients still receive packets.
    pub fn cut_from_clients(&self, dead: bool) {
        self.state.deaf.store(dead, Ordering::Relaxed);
    }

    /// Starts recording the packets of clients.
    pub fn listen(&self) {
        *self.state.received.lock().unwrap() = Some(Vec::new());
    }

    /// Returns the recorded packets.
    pub fn received(&self) -> Vec<Vec<u8>> {
        self.state.received.lock().unwrap().take().unwrap_or_default()
    }

    pub fn move_clients(&self) {
        self.state.moved.send_modify(|count| *count += 1);
    }
}

async fn side(
    state: Arc<State>,
    front: Arc<UdpSocket>,
    client: SocketAddr,
    server: SocketAddr,
    mut from_client: tokio::sync::mpsc::Receiver<Vec<u8>>,
) {
    let mut moved = state.moved.subscribe();
    let mut back = far(server).await;
    let mut buffer = vec![0; 65_536];
    loop {
        tokio::select! {
            packet = from_client.recv() => {
                let Some(packet) = packet else { return };
                let back = Arc::clone(&back);
                if state.deaf.load(Ordering::Relaxed) { continue }
                state.pass(packet, move |packet| { let _ = back.try_send(packet); });
            }
            received = back.recv(&mut buffer) => {
                let Ok(count) = received else { continue };
                if state.mute.load(Ordering::Relaxed) { continue }
                let (packet, front) = (buffer[..count].to_vec(), Arc::clone(&front));
                state.pass(packet, move |packet| { let _ = front.try_send_to(packet, client); });
            }
            _ = moved.changed() => back = far(server).await,
        }
    }
}

async fn far(server: SocketAddr) -> Arc<UdpSocket> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(server).await.unwrap();
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(4 << 20);
    Arc::new(socket)
}

impl State {
    /// Forwards, drops, delays, duplicates or corrupts a packet. Loses the packet if the socket's
    /// buffer is full.
    fn pass(&self, mut packet: Vec<u8>, send: impl Fn(&[u8]) + Send + 'static) {
        if self.chance(&self.loss) {
            return;
        }
        if self.chance(&self.corrupt) {
            let bit = self.draw() as usize % (packet.len() * 8).max(1);
            packet.get_mut(bit / 8).into_iter().for_each(|byte| *byte ^= 1 << (bit % 8));
        }
        if self.chance(&self.duplicate) {
            send(&packet);
        }
        if !self.chance(&self.reorder) {
            return send(&packet);
        }
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(3)).await;
            send(&packet);
        });
    }

    fn chance(&self, of_thousand: &AtomicU32) -> bool {
        self.draw() % 1000 < u64::from(of_thousand.load(Ordering::Relaxed))
    }

    fn draw(&self) -> u64 {
        // xorshift64 (Marsaglia 2003).
        let step = |mut value: u64| {
            value ^= value << 13;
            value ^= value >> 7;
            value ^ value << 17
        };
        let random = self
            .random
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |value| Some(step(value)));
        random.unwrap_or(0)
    }
}
