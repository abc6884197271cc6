package io.sanderling.client;

import java.lang.ref.PhantomReference;
import java.lang.ref.ReferenceQueue;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/** Holds what the native half gave out, and gives it back once: at the close, or when forgotten. */
final class Guard extends PhantomReference<Object> {
    private static final ReferenceQueue<Object> FORGOTTEN = new ReferenceQueue<>();
    /** Keeps the guards themselves alive. */
    private static final Set<Guard> OPEN = ConcurrentHashMap.newKeySet();

    static {
        Thread thread = new Thread(Guard::giveBackForgotten, "sanderling-cleaner");
        thread.setDaemon(true);
        thread.setContextClassLoader(null);
        thread.start();
    }

    private final AtomicLong handle;

    private Guard(Object owner, long handle) {
        super(owner, FORGOTTEN);
        this.handle = new AtomicLong(handle);
    }

    /** Guards a handle until it is given back, or until the owner is unreachable. */
    static Guard of(Object owner, long handle) {
        Guard guard = new Guard(owner, handle);
        OPEN.add(guard);
        return guard;
    }

    /** Returns how many handles are not given back. */
    static int open() {
        return OPEN.size();
    }

    /** Returns the handle; 0 when it was given back. */
    long handle() {
        return handle.get();
    }

    /** Takes the handle away, for a call that gives it back itself; 0 when another call did. */
    long take() {
        OPEN.remove(this);
        clear();
        return handle.getAndSet(0);
    }

    /** Gives the handle back; does nothing the second time. */
    void release() {
        long taken = take();
        if (taken != 0) {
            Native.release(taken);
        }
    }

    private static void giveBackForgotten() {
        while (true) {
            try {
                ((Guard) FORGOTTEN.remove()).release();
            } catch (InterruptedException interrupted) {
                // No call ends this thread: it is a daemon and ends with the process.
            }
        }
    }
}
