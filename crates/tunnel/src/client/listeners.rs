//! A running client's listeners, and the changes that a reload makes to them.

use super::listener::{self, OpenListener};
use super::{ClientError, ListenAt, Listener, Reverse, Route, Shared, reverse};
use crate::descriptors::Descriptors;
use crate::hand_over::{Handed, listener_name};
use crate::target::Target;
use crate::transport::Shards;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use tokio_util::sync::CancellationToken;

/// The route of a listener's connections. A reload may change the route for new connections.
pub(super) type SharedRoute = Arc<RwLock<Route>>;

#[derive(Debug, Default)]
pub(super) struct Listeners(Mutex<Vec<ActiveListener>>);

#[derive(Debug)]
struct ActiveListener {
    /// The requested address, and its index among requests for the same address (with port 0).
    requested: (ListenAt, usize),
    opened: OpenListener,
}

/// Listeners at the server, by the number that the client gave them. Numbers are never reused.
#[derive(Debug, Default)]
pub(super) struct Reverses(RwLock<Vec<Option<RequestedListener>>>);

#[derive(Debug)]
struct RequestedListener {
    reverse: Reverse,
    cancel: CancellationToken,
}

impl Listeners {
    /// Replaces all listeners with `wanted`. If a listener cannot be opened, all present listeners
    /// stay. A listener that stays keeps its connections; its new connections take the new route.
    /// Takes over the sockets of another process from `handed`.
    pub(super) async fn replace(
        &self,
        wanted: Vec<Listener>,
        shared: &Arc<Shared>,
        shards: &Arc<Shards>,
        handed: &mut Handed,
    ) -> Result<(), ClientError> {
        let mut made: Vec<ActiveListener> = Vec::new();
        let requested: Vec<(ListenAt, usize)> = numbered(&wanted);
        for (index, (requested, Listener { listen, route })) in
            requested.iter().zip(&wanted).enumerate()
        {
            check(listen, route)?;
            if !self.lock().iter().any(|one| one.requested == *requested) {
                let taken = listener::taken_over(listen, requested.1, handed);
                let opened =
                    listener::open(shared, shards, index, listen.clone(), route.clone(), taken);
                made.push(ActiveListener { requested: requested.clone(), opened: opened.await? });
            }
        }
        let place = |one: &ActiveListener| {
            requested.iter().position(|requested| one.requested == *requested)
        };
        let mut all = self.lock();
        all.retain(|one| place(one).is_some());
        all.append(&mut made);
        // Sort the listeners into the requested order, which reports also use.
        all.sort_by_key(place);
        for (active, Listener { route, .. }) in all.iter().zip(&wanted) {
            *active.opened.route.write().unwrap_or_else(PoisonError::into_inner) = route.clone();
        }
        Ok(())
    }

    /// Adds copies of all sockets for another process. Open flows of datagrams stay in this
    /// process.
    pub(super) fn hand_over(&self, handed: &mut Handed) -> std::io::Result<()> {
        let all = self.lock();
        for one in &*all {
            let name = listener_name(&one.requested.0, one.requested.1);
            let Some(socket) = &one.opened.socket else { continue };
            let file = socket.try_clone()?;
            match &one.opened.owner {
                Some(owner) => handed.add_path(name, file, owner),
                None => handed.add(name, file),
            }
        }
        // Each flow that stays needs a descriptor. Leave enough descriptors for the hand-over
        // itself.
        for one in &*all {
            if let Some(flows) = one.opened.flows.as_ref().and_then(Weak::upgrade) {
                let free = Descriptors::of_process().map(|descriptors| descriptors.for_tunnels());
                flows.keep_flows(free.map_or(usize::MAX, |free| free / 2));
            }
        }
        Ok(())
    }

    /// Continues after a failed hand-over: only this process reads the sockets.
    pub(super) fn take_back(&self) {
        for one in &*self.lock() {
            if let Some(flows) = one.opened.flows.as_ref().and_then(Weak::upgrade) {
                flows.keep_no_more();
            }
        }
    }

    /// Closes the copies of all sockets. If a copy stayed open, the kernel would continue to accept
    /// connections that no process serves. The listeners' tasks close the sockets themselves.
    pub(super) fn forget_sockets(&self) {
        for one in self.lock().iter_mut() {
            (one.opened.socket, one.opened.owner) = (None, None);
        }
    }

    /// Closes this process's listeners after another process has taken them over. Tunnels continue.
    pub(super) fn leave(&self) {
        self.lock().clear();
    }

    pub(super) fn bound(&self) -> Vec<ListenAt> {
        self.lock().iter().map(|one| one.opened.bound.clone()).collect()
    }

    /// Returns the listeners in the notation of the configuration, with actual ports in place of
    /// port 0.
    pub(super) fn shown(&self) -> Vec<String> {
        let shown = |one: &ActiveListener| {
            let route = one.opened.route.read().unwrap_or_else(PoisonError::into_inner);
            match (&*route, &one.opened.bound) {
                (Route::Socks5(_), ListenAt::Tcp(address)) => format!("socks5:{address}"),
                (Route::HttpConnect(_), ListenAt::Tcp(address)) => format!("http:{address}"),
                (_, bound) => bound.to_string(),
            }
        };
        self.lock().iter().map(shown).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<ActiveListener>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reverses {
    /// Replaces the listeners at the server, and requests new listeners from the server.
    pub(super) fn replace(&self, wanted: &[Reverse], shared: &Arc<Shared>, shards: &Shards) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter_mut() {
            let Some(requested) = one else { continue };
            match wanted.iter().find(|reverse| reverse.listen == requested.reverse.listen) {
                Some(reverse) => requested.reverse.target = reverse.target.clone(),
                None => *one = None,
            }
        }
        for reverse in wanted {
            let is_same =
                |requested: &&RequestedListener| requested.reverse.listen == reverse.listen;
            if all.iter().flatten().any(|requested| is_same(&requested)) {
                continue;
            }
            let Ok(number) = u32::try_from(all.len()) else { return };
            let cancel = CancellationToken::new();
            let run = reverse::keep_registered(Arc::clone(shared), number, reverse.listen.clone());
            let (ended, ending) = (shared.ended.clone(), cancel.clone());
            shards.next().spawn(async move {
                tokio::select! {
                    () = run => {}
                    () = ended.cancelled() => {}
                    () = ending.cancelled() => {}
                }
            });
            all.push(Some(RequestedListener { reverse: reverse.clone(), cancel }));
        }
    }

    /// Returns the target of the listener with this number. Only this end chooses the target.
    pub(super) fn target(&self, number: u32) -> Option<Target> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let requested = all.get(usize::try_from(number).ok()?)?.as_ref()?;
        Some(requested.reverse.target.clone())
    }
}

/// Refuses a datagram listener with a stream target, a stream listener with a datagram target, and
/// a proxy that does not listen on TCP.
fn check(listen: &ListenAt, route: &Route) -> Result<(), ClientError> {
    let carries_datagrams = matches!(listen, ListenAt::Udp(_));
    match route {
        Route::Target(target) if carries_datagrams != target.is_datagrams() => {
            Err(ClientError::Mixed(listen.clone(), target.clone()))
        }
        Route::Socks5(_) | Route::HttpConnect(_) if !matches!(listen, ListenAt::Tcp(_)) => {
            Err(ClientError::MixedProxy(listen.clone()))
        }
        Route::Token(_) if carries_datagrams => Err(ClientError::MixedProxy(listen.clone())),
        _ => Ok(()),
    }
}

/// Returns each listener's address with the number of earlier listeners on the same address.
fn numbered(wanted: &[Listener]) -> Vec<(ListenAt, usize)> {
    let before = |index: usize, listen: &ListenAt| {
        wanted[..index].iter().filter(|other| other.listen == *listen).count()
    };
    let each = wanted.iter().enumerate();
    each.map(|(index, one)| (one.listen.clone(), before(index, &one.listen))).collect()
}

impl Drop for RequestedListener {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}
