use crate::counters::Counters;
use crate::frame::{FLOWS, flow_of};
use crate::session::Session;
use crate::transport::Connection;
use bytes::Bytes;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// The flows of one connection.
#[derive(Debug)]
pub(crate) struct Flows {
    table: Mutex<Table>,
    /// The number of the next flow that this end opens. One end uses even numbers, and the other
    /// end uses odd numbers.
    next: AtomicU32,
}

#[derive(Debug, Default)]
struct Table {
    flows: HashMap<u32, mpsc::Sender<Bytes>>,
    /// Datagrams of flows whose stream has not arrived yet.
    early: VecDeque<(u32, Bytes)>,
}

/// The datagrams of one flow from the other end. Dropping the value ends the flow.
#[derive(Debug)]
pub(crate) struct Flow<C: Connection> {
    number: u32,
    session: Arc<Session<C>>,
    receiver: mpsc::Receiver<Bytes>,
}

impl Flows {
    pub(crate) fn new(first: u32) -> Self {
        Self { table: Mutex::default(), next: AtomicU32::new(first) }
    }

    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(2, Ordering::Relaxed) % FLOWS
    }

    /// Delivers datagrams to their flows. Lets the flows' tasks take the datagrams of a whole batch
    /// before the next batch follows, because a burst is longer than a flow's queue.
    pub(crate) async fn deliver_all(&self, batch: &mut [Bytes], counters: &Counters) {
        for datagram in &mut *batch {
            self.deliver(std::mem::take(datagram), counters);
        }
        if batch.len() >= BATCH {
            tokio::task::yield_now().await;
        }
    }

    /// Delivers a datagram to its flow. Drops the datagram if the flow's queue is full, as UDP
    /// does. Queues the datagram of an unknown flow until the flow begins.
    fn deliver(&self, datagram: Bytes, counters: &Counters) {
        let Some((number, payload)) = flow_of(datagram) else {
            counters.not_understood.increment();
            return;
        };
        let mut table = self.lock();
        match table.flows.get(&number) {
            Some(flow) => {
                if flow.try_send(payload).is_err() {
                    counters.datagrams_dropped.increment();
                }
            }
            None => {
                if table.early.len() >= EARLY {
                    table.early.pop_front();
                    counters.datagrams_dropped.increment();
                }
                table.early.push_back((number, payload));
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C: Connection> Flow<C> {
    /// Returns `None` if the flow number is in use.
    pub(crate) fn begin(session: &Arc<Session<C>>, number: u32) -> Option<Self> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut table = session.flows.lock();
        if table.flows.contains_key(&number) {
            return None;
        }
        let early = std::mem::take(&mut table.early);
        for (other, payload) in early {
            if other == number {
                let _ = sender.try_send(payload);
            } else {
                table.early.push_back((other, payload));
            }
        }
        table.flows.insert(number, sender);
        drop(table);
        Some(Self { number, session: Arc::clone(session), receiver })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    pub(crate) async fn next(&mut self) -> Option<Bytes> {
        self.receiver.recv().await
    }
}

impl<C: Connection> Drop for Flow<C> {
    fn drop(&mut self) {
        self.session.flows.lock().flows.remove(&self.number);
    }
}

/// Maximum number of datagrams that are delivered at once.
pub(crate) const BATCH: usize = 64;
/// Maximum number of datagrams queued for one slow receiver.
const WAITING: usize = 256;
/// Maximum number of datagrams queued for flows of one connection that are not open yet.
const EARLY: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    #[tokio::test]
    async fn a_burst_longer_than_the_queue_of_a_flow_reaches_a_reader_that_keeps_up() {
        const FLOW: u32 = 2;
        let (flows, counters) = (Flows::new(0), Counters::default());
        let (sender, mut receiver) = mpsc::channel(WAITING);
        flows.lock().flows.insert(FLOW, sender);
        let reader = tokio::spawn(async move {
            let mut read = 0;
            while receiver.recv().await.is_some() {
                read += 1;
            }
            read
        });
        let batches = 4 * WAITING / BATCH;
        for _ in 0..batches {
            let mut batch = vec![frame::datagram(FLOW, b"payload"); BATCH];
            flows.deliver_all(&mut batch, &counters).await;
        }
        flows.lock().flows.clear();
        assert_eq!(reader.await.unwrap(), batches * BATCH);
        assert_eq!(counters.now().datagrams_dropped, 0);
    }
}
