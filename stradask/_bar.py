"""tqdm's progress bar, without its thread and with a lock that is always released."""

from tqdm import tqdm


class Bar(tqdm):
    """A bar that starts no thread, and that gives tqdm's lock back whatever happens while it writes.

    tqdm keeps one lock for all bars, and keeps it where a write raises (a broken pipe, Ctrl-C): the next
    bar of another thread, and tqdm's watching thread at the end of the program, would wait for ever.
    """

    monitor_interval = 0  # no watching thread

    def refresh(self, nolock=False, lock_args=None):
        """Draw the bar; the parameters of tqdm's own method are taken and not needed."""
        with self.get_lock():
            return super().refresh(nolock=True)

    def __del__(self):
        """Write nothing: a bar is closed where it was made, or its stream has failed."""
