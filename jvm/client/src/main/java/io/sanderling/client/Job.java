package io.sanderling.client;

import java.io.IOException;

/**
 * Holds a job: its subtree goes when it ends. Its lease is renewed in native code until then, and
 * by no thread when the process dies.
 */
public final class Job implements AutoCloseable {
    /** Default life of a token: a day. */
    private static final long TOKEN_MILLIS = 24L * 60 * 60 * 1000;

    private final SanderlingClient client;
    private final Guard guard;
    private final String path;
    private final long id;
    private final long leaseMillis;

    Job(SanderlingClient client, Decoder decoder) {
        this.client = client;
        this.guard = Guard.of(this, decoder.number());
        this.id = decoder.number();
        this.path = decoder.text();
        this.leaseMillis = decoder.number();
    }

    /** Returns the root of the job's subtree. */
    public String path() {
        return path;
    }

    /** Returns the job's id. */
    public long id() {
        return id;
    }

    /** Returns after how many milliseconds without renewal the job ends. */
    public long leaseMillis() {
        return leaseMillis;
    }

    /** Returns whether the job has ended, here or in the namenode. */
    public boolean hasEnded() {
        long handle = guard.handle();
        return handle == 0 || Native.hasEnded(this, handle);
    }

    /** Returns how many names and bytes of attributes the job holds, and may hold. */
    public JobAccount account() throws IOException {
        return client.jobAccount(id);
    }

    /**
     * Returns a token for the job's subtree alone, for a day or as long as the client's own holds.
     *
     * @throws BadRequestException where no token is required
     * @throws AccessDeniedException for more than the client's own token allows
     */
    public String token(String... rights) throws IOException {
        return client.token(path, TOKEN_MILLIS, "job " + id, rights);
    }

    /**
     * Ends the job; its subtree goes, unless it was to be kept. Does nothing the second time.
     *
     * @throws IOException when the namenode cannot be reached: the job ends with its lease then
     */
    public void end() throws IOException {
        long handle = guard.take();
        if (handle != 0) {
            Native.endJob(this, handle);
        }
    }

    /** Ends the job as {@link #end()}. */
    @Override
    public void close() throws IOException {
        end();
    }
}
