//! A running client's listeners, and how a reload changes them.

use super::door::{self, Opened};
use super::{ClientError, ListenAt, Listener, Reverse, World, reverse};
use crate::target::Target;
use crate::transport::Shards;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio_util::sync::CancellationToken;

/// The target of a listener's guests. A reload may change it for new guests.
pub(super) type Leads = Arc<RwLock<Target>>;

#[derive(Debug, Default)]
pub(super) struct Listeners(Mutex<Vec<Standing>>);

#[derive(Debug)]
struct Standing {
    /// The requested address, and its index among requests for the same address (with port 0).
    asked: (ListenAt, usize),
    opened: Opened,
}

/// Listeners at the server, by the number that the server knows. Numbers are never reused.
#[derive(Debug, Default)]
pub(super) struct Reverses(RwLock<Vec<Option<Asked>>>);

#[derive(Debug)]
struct Asked {
    reverse: Reverse,
    over: CancellationToken,
}

impl Listeners {
    /// Replaces all listeners with `wanted`. If one cannot be opened, nothing changes. A listener
    /// that stays keeps its guests; new guests go to its new target.
    pub(super) async fn replace(
        &self,
        wanted: Vec<Listener>,
        world: &Arc<World>,
        shards: &Arc<Shards>,
    ) -> Result<(), ClientError> {
        let mut made: Vec<Standing> = Vec::new();
        let asked: Vec<(ListenAt, usize)> = numbered(&wanted);
        for (index, (asked, Listener { listen, target })) in asked.iter().zip(&wanted).enumerate() {
            if matches!(listen, ListenAt::Udp(_)) != target.is_datagrams() {
                return Err(ClientError::Mixed(listen.clone(), target.clone()));
            }
            if !self.lock().iter().any(|one| one.asked == *asked) {
                let opened = door::open(world, shards, index, listen.clone(), target.clone());
                made.push(Standing { asked: asked.clone(), opened: opened.await? });
            }
        }
        let place = |one: &Standing| asked.iter().position(|asked| one.asked == *asked);
        let mut all = self.lock();
        all.retain(|one| place(one).is_some());
        all.append(&mut made);
        // Sort into the requested order, in which they are also reported.
        all.sort_by_key(place);
        for (standing, Listener { target, .. }) in all.iter().zip(&wanted) {
            *standing.opened.leads.write().unwrap_or_else(PoisonError::into_inner) = target.clone();
        }
        Ok(())
    }

    pub(super) fn bound(&self) -> Vec<ListenAt> {
        self.lock().iter().map(|one| one.opened.bound.clone()).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reverses {
    /// Replaces the listeners at the server, and requests new ones from it.
    pub(super) fn replace(&self, wanted: &[Reverse], world: &Arc<World>, shards: &Shards) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for one in all.iter_mut() {
            let Some(asked) = one else { continue };
            match wanted.iter().find(|reverse| reverse.listen == asked.reverse.listen) {
                Some(reverse) => asked.reverse.target = reverse.target.clone(),
                None => *one = None,
            }
        }
        for reverse in wanted {
            let stands = |asked: &&Asked| asked.reverse.listen == reverse.listen;
            if all.iter().flatten().any(|asked| stands(&asked)) {
                continue;
            }
            let Ok(number) = u32::try_from(all.len()) else { return };
            let over = CancellationToken::new();
            let keep = reverse::keep(Arc::clone(world), number, reverse.listen.clone());
            let (ended, ending) = (world.ended.clone(), over.clone());
            shards.next().spawn(async move {
                tokio::select! {
                    () = keep => {}
                    () = ended.cancelled() => {}
                    () = ending.cancelled() => {}
                }
            });
            all.push(Some(Asked { reverse: reverse.clone(), over }));
        }
    }

    /// The target of the listener with this number. Only this end chooses it.
    pub(super) fn target(&self, number: u32) -> Option<Target> {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let asked = all.get(usize::try_from(number).ok()?)?.as_ref()?;
        Some(asked.reverse.target.clone())
    }
}

/// Each listener with the number of equal ones before it.
fn numbered(wanted: &[Listener]) -> Vec<(ListenAt, usize)> {
    let before = |index: usize, listen: &ListenAt| {
        wanted[..index].iter().filter(|other| other.listen == *listen).count()
    };
    let each = wanted.iter().enumerate();
    each.map(|(index, one)| (one.listen.clone(), before(index, &one.listen))).collect()
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.over.cancel();
    }
}
