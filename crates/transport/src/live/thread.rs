//! The thread of an endpoint, as programs have it.

use std::net::SocketAddr;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, PoisonError};
use std::time::Duration as Wall;

use ontempo_foundation::Duration;
use ontempo_udp::{Clock, CommandError, Driver, DriverOptions, Socket, Takes};

use super::driver::{EndpointDriver, Tasks};
use super::error::Error;
use super::shared::{Command, Task};

/// Handle of an endpoint's thread. Dropping it closes all connections and ends the thread.
pub(super) struct EndpointThread {
    driver: Option<Driver<EndpointDriver>>,
    tasks: Tasks,
    pub(super) local: SocketAddr,
    pub(super) clock: Clock,
}

/// Pause before a command is sent again when the command queue was full.
const RETRY: Wall = Wall::from_micros(100);

impl EndpointThread {
    pub(super) fn start(
        socket: Socket,
        endpoint: EndpointDriver,
        options: DriverOptions,
    ) -> Result<Arc<Self>, Error> {
        let clock = Clock::new();
        let local = socket.local_address()?;
        let tasks = Arc::clone(&endpoint.tasks);
        let driver = Driver::spawn(socket, endpoint, clock, options)?;
        Ok(Arc::new(Self { driver: Some(driver), tasks, local, clock }))
    }

    /// Adds a task for the thread.
    pub(super) fn submit(&self, task: Task) {
        if self.add(task) {
            self.command(Command::RunTasks);
        }
    }

    /// True if it is the first: if others wait, the command for them has been sent already.
    fn add(&self, task: Task) -> bool {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
        tasks.len() == 1
    }

    /// Adds a task that [`run_here`](Self::run_here) is to follow.
    pub(super) fn submit_to_run(&self, task: Task) {
        if self.add(task) {
            self.pass(Command::RunTasks, Driver::queue);
        }
    }

    /// Runs the endpoint on the calling thread, if its own sleeps.
    pub(super) fn run_here(&self) {
        if let Some(driver) = &self.driver {
            driver.run_here();
        }
    }

    /// As [`run_here`](Self::run_here); see [`Driver::visit`].
    pub(super) fn visit(&self, patience: Duration, takes: Takes) {
        if let Some(driver) = &self.driver {
            driver.visit(patience, takes);
        }
    }

    /// Sends a command to the thread, waiting while the queue is full; false if it has ended.
    pub(super) fn command(&self, command: Command) -> bool {
        self.pass(command, Driver::command)
    }

    fn pass(
        &self,
        mut command: Command,
        to: impl Fn(&Driver<EndpointDriver>, Command) -> Result<(), CommandError<Command>>,
    ) -> bool {
        let Some(driver) = &self.driver else { return false };
        loop {
            match to(driver, command) {
                Ok(()) => return true,
                Err(CommandError::Ended(_)) => return false,
                Err(CommandError::Full(returned)) => {
                    command = returned;
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    /// Has a command handled, on this thread if that of the endpoint sleeps, and waits for its reply; `None` if the thread or the
    /// connection has ended.
    pub(super) fn request<R>(&self, command: impl FnOnce(SyncSender<R>) -> Command) -> Option<R> {
        let (sender, reply) = std::sync::mpsc::sync_channel(1);
        if !self.pass(command(sender), Driver::queue) {
            return None;
        }
        self.run_here();
        reply.recv().ok()
    }
}

impl Drop for EndpointThread {
    fn drop(&mut self) {
        if self.command(Command::End)
            && let Some(driver) = self.driver.take()
        {
            // A socket error has been reported to every user of the socket already.
            let _ = driver.wait();
        }
    }
}
