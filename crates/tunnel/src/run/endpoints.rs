//! The sockets of an end's status and metrics.

use super::hand_over::Handing;
use super::{RunError, lock};
use crate::config::{MetricsAddress, Settings};
use crate::hand_over::{Handed, STATUS};
use crate::status::{
    self, Directory, Manage, MetricsListener, Reply, Request, SharedSocket, Status, StatusListener,
    StatusSource,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::task::JoinSet;

/// The sockets over which other processes query this end's status.
pub(super) struct StatusEndpoints {
    socket: Option<StatusListener>,
    metrics: Option<(MetricsListener, MetricsAddress)>,
    /// The path of the status socket, if the user named one.
    path: Option<PathBuf>,
}

impl StatusEndpoints {
    /// Opens the sockets. Fails if a configured socket is unavailable. If the default socket is
    /// unavailable, the end runs without the socket.
    ///
    /// Takes over the sockets of another process in `handed`.
    pub(super) async fn open(
        role: &str,
        settings: &Settings,
        handed: &mut Handed,
    ) -> Result<Self, RunError> {
        let socket = match &settings.status_socket {
            Some(path) => Some(match StatusListener::taken_over(path, handed) {
                Some(taken) => taken?,
                None => status::listen(path)?,
            }),
            None => {
                let directory = Directory::of_user();
                directory
                    .listen(role)
                    .inspect_err(|error| tracing::warn!("no `weir tunnel status`: {error}"))
                    .ok()
            }
        };
        let metrics = match &settings.metrics_on {
            None => None,
            Some(address) => {
                let bound = match MetricsListener::taken_over(address, handed) {
                    Some(taken) => taken,
                    None => MetricsListener::bind(address).await,
                };
                let failed = |error| RunError::Metrics(address.clone(), error);
                Some((bound.map_err(failed)?, address.clone()))
            }
        };
        Ok(Self { socket, metrics, path: settings.status_socket.clone() })
    }

    /// Makes the kernel report this process as the peer of sockets that were taken over.
    pub(super) fn own(&self) {
        self.socket.iter().for_each(StatusListener::own);
    }

    /// Returns copies of the sockets for another process.
    fn shared(&self) -> io::Result<Vec<SharedSocket>> {
        let mut all = Vec::new();
        if let Some((file, owner)) =
            self.socket.as_ref().map(StatusListener::shared).transpose()?.flatten()
        {
            all.push((STATUS.to_owned(), file, Some(owner)));
        }
        if let Some((metrics, address)) = &self.metrics {
            all.push(metrics.share(address)?);
        }
        Ok(all)
    }

    /// Serves until the returned value is dropped, or until another process has the sockets.
    pub(super) fn serve<T: Send + Sync + 'static>(
        self,
        end: Weak<T>,
        look: impl Fn(&T) -> Status + Send + Sync + 'static,
        manage: impl Fn(&T, Request) -> Reply + Send + Sync + 'static,
        handing: Handing<T>,
    ) -> JoinSet<()> {
        let managed = Weak::clone(&end);
        let manage: Manage = Arc::new(move |request| match managed.upgrade() {
            Some(end) => manage(&end, request),
            None => Reply::Refused("this end is shutting down".to_owned()),
        });
        let tell: StatusSource = Arc::new(move || end.upgrade().map(|end| look(&end)));
        match self.shared() {
            Ok(shared) => *lock(&handing.sockets) = shared,
            Err(error) => tracing::warn!(%error, "no hand-over of the sockets of status"),
        }
        let handed = handing.handed.clone();
        let handing: status::Handing = Arc::new(handing);
        let mut tasks = JoinSet::new();
        if let Some(socket) = self.socket {
            let (tell, path) = (Arc::clone(&tell), self.path);
            let handed = handed.clone();
            tasks.spawn(async move {
                let serving = socket.serve(Arc::clone(&tell), Arc::clone(&manage), Some(handing));
                let Some(path) = path else { return serving.await };
                tokio::select! {
                    () = serving => return,
                    () = handed.cancelled() => {}
                }
                // The other process has `path` now, so use another path.
                let mut name = path.into_os_string();
                name.push(format!(".{}", std::process::id()));
                match status::listen(Path::new(&name)) {
                    Ok(socket) => socket.serve(tell, manage, None).await,
                    Err(error) => {
                        tracing::warn!(%error, "`weir tunnel status` does not show this process");
                    }
                }
            });
        }
        if let Some((metrics, _)) = self.metrics {
            tasks.spawn(async move {
                tokio::select! {
                    () = status::serve_metrics(metrics, tell) => {}
                    () = handed.cancelled() => {}
                }
            });
        }
        tasks
    }
}
