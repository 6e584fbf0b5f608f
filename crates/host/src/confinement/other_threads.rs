//! Tasks on threads with rights of their own.

use std::io;
use std::sync::mpsc::{self, Sender};

type Task = Box<dyn FnOnce() + Send>;

/// Starts a thread for each task. The threads have the rights of the thread that started them, not
/// the rights of the thread that has the task. Files that one thread may open stay closed to the
/// other thread, even if an attacker controls the memory of both.
#[derive(Debug)]
pub struct OtherThreads(Sender<Task>);

impl OtherThreads {
    /// Runs `prepare`, which gives up rights, on the thread that starts the other threads. Returns
    /// what `prepare` returns.
    pub fn start<T: Send + 'static>(
        name: &str,
        prepare: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<(Self, T)> {
        let (sender, tasks) = mpsc::channel::<Task>();
        let (prepared, result) = mpsc::sync_channel(1);
        let named = name.to_owned();
        std::thread::Builder::new().name(named.clone()).spawn(move || {
            let _ = prepared.send(prepare());
            while let Ok(task) = tasks.recv() {
                // Without a thread the task is dropped, and with the task its end of any channel.
                let _ = std::thread::Builder::new().name(named.clone()).spawn(task);
            }
        })?;
        let result = result.recv().map_err(|_| io::Error::other("the thread has ended"))?;
        Ok((Self(sender), result))
    }

    /// Runs the task on a thread of its own, or drops it if there can be no further thread.
    pub fn run(&self, task: impl FnOnce() + Send + 'static) {
        let _ = self.0.send(Box::new(task));
    }

    /// Runs the task as [`OtherThreads::run`] does, and returns its result.
    pub fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let (answer, result) = mpsc::sync_channel(1);
        self.run(move || {
            let _ = answer.send(task());
        });
        result.recv().map_err(|_| io::Error::other("there is no thread for this task"))
    }
}
