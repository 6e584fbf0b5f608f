//! The bytes that tunnels, connections and identities have carried, and the quotas of identities.

mod pace;
mod quota;

pub use quota::{Period, Quota, Volume, VolumeError};

use crate::access_log::{AccessLog, End, Ended, now};
use crate::identity::PeerName;
use pace::Pace;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use units::foreign;

/// The direction in which bytes pass, as the counters name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Received from the tunnel and written to a local socket.
    In,
    /// Read from a local socket and sent to the tunnel.
    Out,
}

/// The identity's quota is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OverQuota;

/// Bytes of both directions, and their rates in the last second.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    bytes: [AtomicU64; 2],
    sampled: [AtomicU64; 2],
    /// The rates of the last second, in bits per second.
    rates: [AtomicU64; 2],
}

/// The account of one identity, which outlives the identity's connections.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) carried: Carried,
    /// The number of open connections.
    sessions: AtomicUsize,
    quota: Mutex<Quota>,
    /// The number of the quota's present calendar period.
    period: AtomicU64,
    /// The number of bytes carried in the present period.
    used: AtomicU64,
    /// Maximum number of bytes in a period; 0 means no limit.
    most: AtomicU64,
    paces: [Pace; 2],
}

/// The accounts of a server.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<PeerName, Arc<Account>>>);

/// Counts a connection in its identity's account until this value is dropped.
#[derive(Debug)]
pub(crate) struct CountedSession(Arc<Account>);

/// The bytes and rates of a connection, and the account of its identity.
#[derive(Debug)]
pub(crate) struct SessionMeter {
    /// The number of the connection, unique in this process.
    number: u64,
    since: SystemTime,
    began: Instant,
    carried: Carried,
    account: Arc<Account>,
    /// At a server that writes an access log: the log, and the identity of the peer.
    log: Option<(Arc<AccessLog>, PeerName)>,
    /// The reason for which this end has closed the connection.
    closed_as: OnceLock<End>,
}

/// The bytes of a tunnel, and the account that pays for them.
#[derive(Debug)]
pub(crate) struct TunnelMeter {
    session: Arc<SessionMeter>,
    /// The account whose quota the tunnel spends.
    payer: Option<Arc<Account>>,
    bytes: [AtomicU64; 2],
    began: Instant,
    /// The direction and target for the access log, if there is a log.
    about: OnceLock<Box<About>>,
    end: OnceLock<End>,
}

/// The direction and the target of a tunnel.
#[derive(Debug)]
struct About {
    direction: &'static str,
    target: String,
    user: Option<PeerName>,
}

/// A connection in the status.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SessionFigures {
    /// The number of the connection, unique in its process.
    pub session: u64,
    /// The start of the connection, in seconds since 1970.
    pub since: u64,
    pub seconds: f64,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The rates of the last second, in bits per second.
    pub rate_in: u64,
    pub rate_out: u64,
}

/// An identity's account in the status.
#[derive(Debug, Clone, PartialEq)]
pub struct AccountFigures {
    pub peer: PeerName,
    pub sessions: usize,
    pub bytes_in: u64,
    pub bytes_out: u64,
    /// The rates of the last second, in bits per second.
    pub rate_in: u64,
    pub rate_out: u64,
    pub quota: Quota,
    /// Bytes in the present period of the quota.
    pub used: u64,
    /// The end of that period, in seconds since 1970.
    pub renews: u64,
}

impl Carried {
    fn add(&self, direction: Direction, bytes: u64) {
        self.bytes[direction as usize].fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self, direction: Direction) -> u64 {
        self.bytes[direction as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn rate(&self, direction: Direction) -> u64 {
        self.rates[direction as usize].load(Ordering::Relaxed)
    }

    /// Computes the rates over the time since the last call, which was `elapsed` ago.
    fn sample(&self, elapsed: Duration) {
        for ((bytes, sampled), rate) in self.bytes.iter().zip(&self.sampled).zip(&self.rates) {
            let bytes = bytes.load(Ordering::Relaxed);
            let before = sampled.swap(bytes, Ordering::Relaxed);
            let bits = bytes.saturating_sub(before) as f64 * 8.0;
            rate.store((bits / elapsed.as_secs_f64().max(1e-3)) as u64, Ordering::Relaxed);
        }
    }
}

impl Account {
    /// Applies a quota. If the former quota had the same period, the count of the present period
    /// continues; otherwise the count begins at 0.
    pub(crate) fn set_quota(&self, new: Quota, now: Duration) {
        let mut quota = self.quota();
        let before = quota.volume.map(|volume| volume.period);
        *quota = new;
        if before != new.volume.map(|volume| volume.period) {
            self.period.store(0, Ordering::Relaxed);
        }
        self.begin_period(&quota, now);
        self.most.store(new.volume.map_or(0, |volume| volume.bytes.count()), Ordering::Relaxed);
        self.paces.iter().for_each(|pace| pace.set(new.rate));
    }

    /// Counts a connection, unless the identity already has as many connections as its quota
    /// permits, or `usual` connections without a quota. The error is the limit.
    pub(crate) fn admit_session(self: &Arc<Self>, usual: usize) -> Result<CountedSession, usize> {
        let most = self.quota().sessions.unwrap_or(usual);
        let more = |sessions| (sessions < most).then_some(sessions + 1);
        let counted = self.sessions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted.map_err(|_| most)?;
        Ok(CountedSession(Arc::clone(self)))
    }

    /// Whether the bytes of the present period have reached the quota.
    pub(crate) fn is_spent(&self) -> bool {
        let most = self.most.load(Ordering::Relaxed);
        most > 0 && self.used.load(Ordering::Relaxed) >= most
    }

    /// Returns the reason to refuse a new tunnel if the quota is used up.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.begin_period(&self.quota(), since_1970());
        let volume = self.quota().volume.filter(|_| self.is_spent())?;
        let (_, end) = volume.period.at(since_1970());
        let end = crate::identity::date(end);
        Some(format!("this identity has used up its quota of {volume} until {end}"))
    }

    fn second(&self, elapsed: Duration) {
        self.carried.sample(elapsed);
        self.begin_period(&self.quota(), since_1970());
    }

    /// Begins a new period if the present period is over, or if the clock was set back by more than
    /// one period.
    fn begin_period(&self, quota: &Quota, now: Duration) {
        let Some(volume) = quota.volume else { return };
        let (number, _) = volume.period.at(now);
        let last = self.period.load(Ordering::Relaxed);
        if number > last || number + 1 < last {
            self.period.store(number, Ordering::Relaxed);
            self.used.store(0, Ordering::Relaxed);
        }
    }

    fn count(&self, direction: Direction, bytes: u64) {
        self.carried.add(direction, bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn figures(&self, peer: PeerName) -> AccountFigures {
        let quota = *self.quota();
        AccountFigures {
            peer,
            sessions: self.sessions.load(Ordering::Relaxed),
            bytes_in: self.carried.bytes(Direction::In),
            bytes_out: self.carried.bytes(Direction::Out),
            rate_in: self.carried.rate(Direction::In),
            rate_out: self.carried.rate(Direction::Out),
            quota,
            used: quota.volume.map_or(0, |_| self.used.load(Ordering::Relaxed)),
            renews: quota.volume.map_or(0, |volume| volume.period.at(since_1970()).1.as_secs()),
        }
    }

    fn quota(&self) -> MutexGuard<'_, Quota> {
        self.quota.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Accounts {
    pub(crate) fn of(&self, peer: &PeerName) -> Arc<Account> {
        Arc::clone(self.lock().entry(peer.clone()).or_default())
    }

    /// Applies the quotas of all listed identities. Other identities keep their accounts for as
    /// long as a connection uses them.
    pub(crate) fn set_quotas(&self, quotas: &[(PeerName, Quota)]) {
        let mut all = self.lock();
        all.retain(|peer, account| {
            Arc::strong_count(account) > 1 || quotas.iter().any(|(listed, _)| listed == peer)
        });
        for (peer, quota) in quotas {
            all.entry(peer.clone()).or_default().set_quota(*quota, since_1970());
        }
    }

    /// Computes the rates and begins new quota periods. The last call was `elapsed` ago.
    pub(crate) fn second(&self, elapsed: Duration) {
        self.lock().values().for_each(|account| account.second(elapsed));
    }

    pub(crate) fn figures(&self) -> Vec<AccountFigures> {
        let all = self.lock();
        let mut figures: Vec<_> =
            all.iter().map(|(peer, account)| account.figures(peer.clone())).collect();
        figures.sort_by(|one, other| one.peer.cmp(&other.peer));
        figures
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PeerName, Arc<Account>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionMeter {
    pub(crate) fn new(account: Arc<Account>, log: Option<(Arc<AccessLog>, PeerName)>) -> Arc<Self> {
        Arc::new(Self {
            number: LAST_SESSION.fetch_add(1, Ordering::Relaxed) + 1,
            since: SystemTime::now(),
            began: Instant::now(),
            carried: Carried::default(),
            account,
            log,
            closed_as: OnceLock::new(),
        })
    }

    /// Records the reason for which this end is about to close the connection.
    pub(crate) fn close_as(&self, end: End) {
        let _ = self.closed_as.set(end);
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn account(&self) -> &Account {
        &self.account
    }

    /// Computes the rates. The last call was `elapsed` ago.
    pub(crate) fn second(&self, elapsed: Duration) {
        self.carried.sample(elapsed);
    }

    pub(crate) fn figures(&self) -> SessionFigures {
        SessionFigures {
            session: self.number,
            since: self.since.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            seconds: self.began.elapsed().as_secs_f64(),
            bytes_in: self.carried.bytes(Direction::In),
            bytes_out: self.carried.bytes(Direction::Out),
            rate_in: self.carried.rate(Direction::In),
            rate_out: self.carried.rate(Direction::Out),
        }
    }
}

impl TunnelMeter {
    /// Creates the meter of a tunnel that spends the quota of its connection's identity.
    pub(crate) fn new(session: &Arc<SessionMeter>) -> Self {
        let payer = Some(Arc::clone(&session.account));
        Self { payer, ..Self::without_payer(session) }
    }

    /// Creates the meter of a tunnel whose bytes another tunnel's meter already counts.
    pub(crate) fn without_payer(session: &Arc<SessionMeter>) -> Self {
        Self {
            session: Arc::clone(session),
            payer: None,
            bytes: Default::default(),
            began: Instant::now(),
            about: OnceLock::new(),
            end: OnceLock::new(),
        }
    }

    /// Gives the tunnel a line in the access log, if this end writes a log. `user`: the identity
    /// that uses a service of this account's identity.
    pub(crate) fn describe(
        &self,
        direction: &'static str,
        target: impl Display,
        user: Option<&PeerName>,
    ) {
        if self.session.log.as_ref().is_some_and(|(log, _)| log.is_on()) {
            let (target, user) = (foreign(target).to_string(), user.cloned());
            let _ = self.about.set(Box::new(About { direction, target, user }));
        }
    }

    /// Records the reason for which the tunnel ends.
    pub(crate) fn end_as(&self, end: End) {
        let _ = self.end.set(end);
    }

    /// Writes the tunnel's line to the access log. `peer` is the address of the tunnel's peer.
    pub(crate) fn log(&self, peer: SocketAddr) {
        let (Some(about), Some((log, identity))) = (self.about.get(), &self.session.log) else {
            return;
        };
        let end = self.end.get().copied().unwrap_or(End::Shutdown);
        let closed_as = self.session.closed_as.get().copied();
        log.write(&Ended {
            time: now(),
            identity: identity.as_str(),
            peer: SocketAddr::new(peer.ip().to_canonical(), peer.port()),
            session: self.session.number,
            direction: about.direction,
            target: &about.target,
            user: about.user.as_ref().map(PeerName::as_str),
            bytes_in: self.bytes[Direction::In as usize].load(Ordering::Relaxed),
            bytes_out: self.bytes[Direction::Out as usize].load(Ordering::Relaxed),
            seconds: (self.began.elapsed().as_secs_f64() * 1e3).round() / 1e3,
            reason: match (end, closed_as) {
                (End::Closed | End::Lost, Some(why)) => why,
                (end, _) => end,
            },
        });
    }

    pub(crate) fn count(&self, direction: Direction, bytes: usize) {
        let bytes = bytes as u64;
        self.bytes[direction as usize].fetch_add(bytes, Ordering::Relaxed);
        self.session.carried.add(direction, bytes);
        if let Some(payer) = &self.payer {
            payer.count(direction, bytes);
        }
    }

    /// Whether a rate limit applies in this direction.
    pub(crate) fn is_paced(&self, direction: Direction) -> bool {
        self.payer.as_ref().is_some_and(|payer| payer.paces[direction as usize].is_limited())
    }

    /// Waits until the rate limit admits `bytes`, which the caller has already counted.
    pub(crate) async fn admit(&self, direction: Direction, bytes: usize) -> Result<(), OverQuota> {
        let Some(payer) = &self.payer else { return Ok(()) };
        if payer.is_spent() {
            return Err(OverQuota);
        }
        let pace = &payer.paces[direction as usize];
        if pace.is_limited() {
            // Keep this future on the heap, so that the futures of tunnels without a limit stay
            // small.
            Box::pin(pace.pass(bytes)).await;
        }
        Ok(())
    }

    /// Whether the quota and the rate limit admit this datagram now. Counts an admitted datagram.
    pub(crate) fn admit_datagram(&self, direction: Direction, bytes: usize) -> bool {
        if let Some(payer) = &self.payer
            && (payer.is_spent() || !payer.paces[direction as usize].passes_now(bytes))
        {
            return false;
        }
        self.count(direction, bytes);
        true
    }

    /// Maximum number of bytes that a tunnel carries per turn. The limit keeps the wait of the
    /// identity's other tunnels short.
    pub(crate) fn most_at_once(&self, direction: Direction) -> usize {
        self.payer.as_ref().map_or(usize::MAX, |payer| payer.paces[direction as usize].at_once())
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

static LAST_SESSION: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use super::*;
    use units::Bytes;

    fn quota(volume: &str) -> Quota {
        Quota { volume: Some(volume.parse().unwrap()), ..Quota::default() }
    }

    #[test]
    fn a_spent_quota_stays_spent_until_its_period_ends_even_if_the_clock_is_set_back() {
        let hour = |hours: u64| Duration::from_secs(hours * 3600);
        let account = Account::default();
        account.count(Direction::Out, 1 << 20);
        account.set_quota(quota("1000B/hour"), hour(500_000));
        assert!(!account.is_spent(), "bytes from before the quota count");
        account.count(Direction::In, 600);
        account.count(Direction::Out, 400);
        assert!(account.is_spent());
        let later = |account: &Account, now| account.begin_period(&account.quota(), now);
        later(&account, hour(499_999));
        later(&account, hour(500_000) + Duration::from_secs(3599));
        assert!(account.is_spent());
        // A reload keeps the bytes of the period, and a larger quota applies at once.
        account.set_quota(quota("2KB/hour"), hour(500_000));
        assert!(!account.is_spent());
        account.set_quota(quota("500B/hour"), hour(500_000));
        assert!(account.is_spent());
        later(&account, hour(500_001));
        assert!(!account.is_spent());
        account.count(Direction::In, 500);
        assert!(account.is_spent());
        // The clock was far ahead and was corrected, so a new period begins.
        later(&account, hour(400_000));
        assert!(!account.is_spent());
        account.set_quota(Quota::default(), hour(400_000));
        assert!(!account.is_spent());
        assert_eq!(account.carried.bytes(Direction::In), 1100);
    }

    #[test]
    fn a_quota_limits_new_sessions_and_a_smaller_quota_ends_no_open_session() {
        let account = Arc::new(Account::default());
        let one = account.admit_session(2).unwrap();
        let _other = account.admit_session(2).unwrap();
        assert_eq!(account.admit_session(2).unwrap_err(), 2);
        let few = Quota { sessions: Some(1), ..Quota::default() };
        account.set_quota(few, Duration::ZERO);
        assert_eq!(account.sessions.load(Ordering::Relaxed), 2);
        drop(one);
        assert_eq!(account.admit_session(64).unwrap_err(), 1);
    }

    #[test]
    fn a_tunnel_without_a_payer_spends_no_quota_and_counts_for_its_session() {
        let account = Arc::new(Account::default());
        let session = SessionMeter::new(Arc::clone(&account), None);
        let (own, of_other) = (TunnelMeter::new(&session), TunnelMeter::without_payer(&session));
        own.count(Direction::In, 3);
        of_other.count(Direction::In, 5);
        assert_eq!(account.carried.bytes(Direction::In), 3);
        assert_eq!(session.figures().bytes_in, 8);
        account.set_quota(
            Quota {
                volume: Some(Volume { bytes: Bytes::new(1), period: Period::Day }),
                ..Quota::default()
            },
            since_1970(),
        );
        assert!(own.admit_datagram(Direction::In, 1) && !own.admit_datagram(Direction::In, 1));
        assert!(of_other.admit_datagram(Direction::In, 1));
        session.second(Duration::from_secs(2));
        assert_eq!(session.figures().rate_in, 10 * 4);
    }
}
