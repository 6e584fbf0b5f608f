use super::tcp_sender::is_acknowledged;
use crate::options::{Amount, TestOptions};
use probe::tcp;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The amount of `-n` or `-k`, which all local senders share. A sender claims a block before the
/// sender sends the block. As in iperf3, senders send whole blocks, so the total exceeds the amount
/// by less than a block.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Budget {
    /// The amount in blocks; `None` for a test that ends by the clock.
    limit: Option<u64>,
    block: u64,
    /// Number of blocks claimed since [`Self::open`]; [`CLOSED`] before the opening.
    claimed: AtomicU64,
    /// Bytes that had been sent when the counting began.
    omitted: AtomicU64,
}

impl Budget {
    /// Creates a budget. The budget counts from the start if the test omits nothing, else from
    /// [`Self::open`] on.
    pub(crate) fn of(options: &TestOptions) -> Self {
        let block = options.block_bytes().max(1) as u64;
        let limit = match options.amount {
            Amount::Time(_) => None,
            Amount::Bytes(bytes) => Some(bytes.div_ceil(block)),
            Amount::Blocks(blocks) => Some(blocks),
        };
        let begins = if options.omit.nanos() == 0 { 0 } else { CLOSED };
        Self { limit, block, claimed: AtomicU64::new(begins), omitted: AtomicU64::new(0) }
    }

    /// Starts the counting. `omitted`: bytes sent until now.
    pub(crate) fn open(&self, omitted: u64) {
        self.omitted.store(omitted, Ordering::Relaxed);
        self.claimed.store(0, Ordering::Release);
    }

    /// Claims `wanted` blocks and returns how many of them may be sent: zero if the amount is used
    /// up.
    pub(crate) fn claim(&self, wanted: u64) -> u64 {
        let Some(limit) = self.limit else { return wanted };
        let claimed = self.claimed.load(Ordering::Acquire);
        if claimed == CLOSED {
            return wanted;
        }
        if claimed >= limit {
            return 0;
        }
        // A claim concurrent with `open` may be lost with the old count. The senders then send
        // another batch; the count of bytes stays exact.
        let before = self.claimed.fetch_add(wanted, Ordering::Relaxed);
        wanted.min(limit.saturating_sub(before))
    }

    /// True if the whole amount was sent. `sent`: bytes sent, omitted bytes included.
    pub(crate) fn is_spent(&self, sent: u64) -> bool {
        let Some(limit) = self.limit else { return false };
        self.claimed.load(Ordering::Acquire) != CLOSED
            && sent.saturating_sub(self.omitted.load(Ordering::Relaxed))
                >= limit.saturating_mul(self.block)
    }
}

const CLOSED: u64 = u64::MAX;

/// Paces a sender whose budget is spent while the test goes on. The peer may lack data because it
/// lost datagrams, or omitted another part of the start. In iperf3, too, the sender goes on until
/// the receiver has the full amount.
#[derive(Debug, Default)]
pub(crate) struct OverBudgetPacer {
    since: Option<Instant>,
}

impl OverBudgetPacer {
    /// Waits for a short time; returns true if another block should be sent.
    pub(crate) fn is_due(&mut self, tcp: Option<&TcpStream>) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        std::thread::sleep(PAUSE);
        // While data is in flight to the peer's kernel, the peer needs no further block.
        since.elapsed() >= SILENCE
            && tcp
                .and_then(|socket| tcp::of_socket(socket).ok())
                .is_none_or(|info| is_acknowledged(&info))
    }
}

const PAUSE: Duration = Duration::from_millis(5);
const SILENCE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;
    use units::{Bytes, Span};

    fn budget(amount: Amount, omit: Span) -> Budget {
        Budget::of(&TestOptions {
            amount,
            omit,
            block: Some(Bytes::new(1000)),
            ..TestOptions::default()
        })
    }

    #[test]
    fn whole_blocks_are_claimed_until_the_amount_is_reached() {
        let budget = budget(Amount::Bytes(2500), Span::ZERO);
        assert_eq!([budget.claim(2), budget.claim(2), budget.claim(2)], [2, 1, 0]);
        assert!(!budget.is_spent(2999));
        assert!(budget.is_spent(3000));
    }

    #[test]
    fn omitted_bytes_use_no_budget() {
        let budget = budget(Amount::Blocks(3), Span::from_secs(1));
        assert_eq!(budget.claim(100), 100);
        assert!(!budget.is_spent(100_000));
        budget.open(100_000);
        assert_eq!([budget.claim(2), budget.claim(2)], [2, 1]);
        assert!(!budget.is_spent(102_000));
        assert!(budget.is_spent(103_000));
    }

    #[test]
    fn senders_share_the_budget_to_the_last_block() {
        let budget = budget(Amount::Blocks(100_000), Span::ZERO);
        let claimed: u64 = std::thread::scope(|scope| {
            let claim =
                || std::iter::from_fn(|| Some(budget.claim(3)).filter(|n| *n > 0)).sum::<u64>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(claim)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(claimed, 100_000);
    }

    #[test]
    fn a_test_of_a_duration_has_no_limit_of_blocks() {
        let budget = budget(Amount::Time(Span::from_secs(1)), Span::ZERO);
        assert_eq!(budget.claim(u64::MAX), u64::MAX);
        assert!(!budget.is_spent(u64::MAX));
    }
}
