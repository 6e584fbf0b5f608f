//! Name look-ups on behalf of peers, bounded per identity, in total, and in time.

use super::resolve::{BoxFuture, Resolve};
use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// A resolver with permits for concurrent look-ups. A look-up occupies a thread and holds its
/// permits until the name server answers or the system gives up, even if the peer has disconnected
/// meanwhile.
#[derive(Debug)]
pub struct Lookups<K> {
    resolver: Arc<dyn Resolve>,
    each: usize,
    all: Arc<Semaphore>,
    /// Look-ups in progress keep the semaphore of their identity alive. So the permits of an
    /// identity stay in use even if the identity reconnects.
    own: Mutex<HashMap<K, Weak<Semaphore>>>,
}

/// The resolver with the permits of one identity and a deadline.
#[derive(Debug)]
pub struct Bounded {
    resolver: Arc<dyn Resolve>,
    own: Arc<Semaphore>,
    all: Arc<Semaphore>,
    deadline: Instant,
}

impl<K: Clone + Eq + Hash> Lookups<K> {
    /// Allows `each` concurrent look-ups per identity and `all` in total. One identity never gets
    /// all permits.
    pub fn new(resolver: Arc<dyn Resolve>, each: usize, all: usize) -> Self {
        let all = all.max(2);
        let each = each.clamp(1, all - 1);
        Self { resolver, each, all: Arc::new(Semaphore::new(all)), own: Mutex::default() }
    }

    pub fn of(&self, identity: &K, deadline: Instant) -> Bounded {
        let (resolver, all) = (Arc::clone(&self.resolver), Arc::clone(&self.all));
        Bounded { resolver, own: self.own(identity), all, deadline }
    }

    fn own(&self, identity: &K) -> Arc<Semaphore> {
        let mut all = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = all.get(identity).and_then(Weak::upgrade) {
            return own;
        }
        all.retain(|_, own| own.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.each));
        all.insert(identity.clone(), Arc::downgrade(&own));
        own
    }
}

impl Bounded {
    /// Acquires the identity's own permit first, so that few look-ups of one identity wait for the
    /// common permits.
    async fn places(&self) -> Option<(OwnedSemaphorePermit, OwnedSemaphorePermit)> {
        let own = Arc::clone(&self.own).acquire_owned().await.ok()?;
        let all = Arc::clone(&self.all).acquire_owned().await.ok()?;
        Some((own, all))
    }
}

impl Resolve for Bounded {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let places = timeout_at(self.deadline, self.places()).await.ok().flatten();
            let places = places.ok_or_else(|| {
                let message = "too many look-ups are under way for this identity or in all";
                io::Error::new(io::ErrorKind::QuotaExceeded, message)
            })?;
            let (resolver, name) = (Arc::clone(&self.resolver), name.to_owned());
            // The deadline ends only the wait; the thread of the look-up continues.
            let looked_up = tokio::spawn(async move {
                let found = resolver.resolve(&name).await;
                drop(places);
                found
            });
            match timeout_at(self.deadline, looked_up).await {
                Ok(found) => found.map_err(io::Error::other)?,
                Err(_) => {
                    let message = "no name server answered in time";
                    Err(io::Error::new(io::ErrorKind::TimedOut, message))
                }
            }
        })
    }
}

/// Maximum number of concurrent look-ups of an identity. A peer that opens hundreds of tunnels by
/// name waits briefly. The resolver uses one thread per look-up.
pub const LOOKUPS_EACH: usize = 16;
pub const LOOKUPS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    /// Resolves the name `there` only, never answers for other names, and counts the queries.
    #[derive(Debug, Default)]
    struct SilentResolver(AtomicUsize);

    impl Resolve for SilentResolver {
        fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                if name != "there" {
                    std::future::pending::<()>().await;
                }
                Ok(vec![[192, 0, 2, 1].into()])
            })
        }
    }

    #[tokio::test]
    async fn an_identity_without_lookup_permits_waits_while_another_identity_is_served() {
        let silent = Arc::<SilentResolver>::default();
        let lookups = Lookups::new(Arc::clone(&silent) as _, 4, 6);
        let soon = Instant::now() + Duration::from_millis(50);
        let mut kinds = Vec::new();
        for round in 0..3 {
            // A new connection of the same identity gets no additional permits.
            let bounded = lookups.of(&"greedy", soon);
            for name in 0..4 {
                let name = format!("n{round}-{name}");
                kinds.push(bounded.resolve(&name).await.unwrap_err().kind());
            }
        }
        let (first, rest) = kinds.split_at(4);
        assert!(first.iter().all(|kind| *kind == io::ErrorKind::TimedOut), "{kinds:?}");
        assert!(rest.iter().all(|kind| *kind == io::ErrorKind::QuotaExceeded), "{kinds:?}");
        assert!(silent.0.load(Ordering::Relaxed) <= 4);
        let long = Instant::now() + Duration::from_secs(60);
        let found = lookups.of(&"other", long).resolve("there").await.unwrap();
        assert_eq!(found, [IpAddr::from([192, 0, 2, 1])]);
    }

    #[tokio::test]
    async fn one_identity_never_takes_all_lookup_permits() {
        let lookups = Lookups::new(Arc::<SilentResolver>::default(), 1000, 3);
        let long = Instant::now() + Duration::from_secs(60);
        let bounded = lookups.of(&"greedy", long);
        let mut held = Vec::new();
        while bounded.own.available_permits() > 0 {
            held.push(bounded.places().await);
        }
        assert_eq!(held.len(), 2);
        lookups.of(&"other", long).resolve("there").await.unwrap();
    }
}
