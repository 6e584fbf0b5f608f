//! The order in which waiting tunnels of one connection are reset while memory is short.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The waiting tunnels, in the order in which this end resets tunnels. A tunnel whose application
/// does not read comes first, because its bytes fill this end's memory. A tunnel that waits for the
/// connection comes later, because other tunnels may be the cause. Within each group, the tunnel
/// that has waited longest comes first.
#[derive(Debug, Default)]
pub(crate) struct ResetOrder(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    begun: u64,
    tunnels: BTreeMap<(Reason, u64), Arc<Notify>>,
}

/// The reason why a tunnel waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The application does not read, or its rate limit takes no bytes.
    Unread,
    /// The connection takes no bytes.
    Blocked,
}

/// The place of one waiting tunnel. Dropping this value removes the tunnel from the order.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    order: &'a ResetOrder,
    key: (Reason, u64),
    told: Arc<Notify>,
}

impl ResetOrder {
    pub(crate) fn join(&self, reason: Reason) -> Place<'_> {
        let told = Arc::new(Notify::new());
        let mut waiting = self.waiting();
        let key = (reason, waiting.begun);
        waiting.begun += 1;
        waiting.tunnels.insert(key, Arc::clone(&told));
        Place { order: self, key, told }
    }

    /// Tells the first `most` tunnels to end. Returns the number of tunnels told.
    pub(crate) fn tell(&self, most: usize) -> usize {
        let mut waiting = self.waiting();
        let first = std::iter::from_fn(|| waiting.tunnels.pop_first());
        first.take(most).map(|(_, told)| told.notify_one()).count()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place<'_> {
    /// Waits until the tunnel is told to end while `is_short` is true. A tunnel that is told too
    /// late keeps its place.
    pub(crate) async fn told(&self, is_short: impl Fn() -> bool) {
        loop {
            self.told.notified().await;
            if is_short() {
                return;
            }
            self.order.waiting().tunnels.insert(self.key, Arc::clone(&self.told));
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.order.waiting().tunnels.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    fn is_told(place: &Place<'_>, is_short: bool) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        pin!(place.told(|| is_short)).poll(&mut context).is_ready()
    }

    #[test]
    fn the_tunnel_that_has_waited_longest_is_reset_first() {
        let order = ResetOrder::default();
        let places = [Reason::Unread; 3].map(|reason| order.join(reason));
        assert_eq!(order.tell(2), 2);
        assert_eq!(places.each_ref().map(|place| is_told(place, true)), [true, true, false]);
    }

    #[test]
    fn unread_tunnels_are_reset_before_tunnels_that_the_connection_blocks() {
        let order = ResetOrder::default();
        let blocked = order.join(Reason::Blocked);
        let unread = order.join(Reason::Unread);
        assert_eq!(order.tell(1), 1);
        assert!(is_told(&unread, true) && !is_told(&blocked, true));
        assert_eq!(order.tell(1), 1);
        assert!(is_told(&blocked, true));
    }

    #[test]
    fn a_tunnel_chosen_while_memory_is_free_keeps_its_place() {
        let order = ResetOrder::default();
        let (first, second) = (order.join(Reason::Blocked), order.join(Reason::Blocked));
        assert_eq!(order.tell(1), 1);
        let (is_short, mut context) = (Cell::new(false), Context::from_waker(Waker::noop()));
        let mut told = pin!(first.told(|| is_short.get()));
        assert!(told.as_mut().poll(&mut context).is_pending());
        is_short.set(true);
        assert_eq!(order.tell(1), 1);
        assert!(told.poll(&mut context).is_ready());
        assert!(!is_told(&second, true));
    }

    #[test]
    fn a_tunnel_that_has_ended_leaves_the_order() {
        let order = ResetOrder::default();
        drop(order.join(Reason::Unread));
        assert_eq!(order.tell(1), 0);
    }
}
