package io.sanderling.client;

import java.util.Objects;

/** Requests a job: a subtree that lives as long as its application renews its lease. Immutable. */
public final class JobRequest {
    /** Default lease of a job: survives a long pause of the garbage collector. */
    private static final long LEASE_MILLIS = 60_000;

    private final String path;
    private final long leaseMillis;
    private final Limits limits;
    private final Hints hints;

    private JobRequest(String path, long leaseMillis, Limits limits, Hints hints) {
        this.path = path;
        this.leaseMillis = leaseMillis;
        this.limits = limits;
        this.hints = hints;
    }

    /** Returns the request for a job with that subtree, a lease of a minute and no limits. */
    public static JobRequest create(String path) {
        Objects.requireNonNull(path, "path");
        return new JobRequest(path, LEASE_MILLIS, new Limits(-1, -1, -1), new Hints());
    }

    /**
     * Sets after how many milliseconds without renewal the job ends.
     *
     * @throws IllegalArgumentException when it is not positive
     */
    public JobRequest withLeaseMillis(long millis) {
        if (millis <= 0) {
            throw new IllegalArgumentException("leaseMillis is not positive: " + millis);
        }
        return new JobRequest(path, millis, limits, hints);
    }

    /** Sets how many bytes the subtree may hold; -1 for as many as there is room. */
    public JobRequest withQuotaBytes(long bytes) {
        long quota = PutOptions.checked("quotaBytes", bytes);
        return with(new Limits(quota, limits.names, limits.attributeBytes));
    }

    /**
     * Sets how many directories and objects the subtree may hold, its root and objects that are
     * being written among them; -1 for as many as there is room.
     */
    public JobRequest withNamesMax(long names) {
        long most = PutOptions.checked("namesMax", names);
        return with(new Limits(limits.quotaBytes, most, limits.attributeBytes));
    }

    /**
     * Sets how many bytes the attributes of all objects together may have, names and texts; -1 for
     * as many as there is room.
     */
    public JobRequest withAttributeBytesMax(long bytes) {
        long most = PutOptions.checked("attributeBytesMax", bytes);
        return with(new Limits(limits.quotaBytes, limits.names, most));
    }

    /** Hints how many bytes there will be at the peak; -1 when unknown. It decides nothing yet. */
    public JobRequest withExpectedBytes(long bytes) {
        Hints other = hints.copy();
        other.expectedBytes = PutOptions.checked("expectedBytes", bytes);
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Hints the bytes per second at the peak; -1 when unknown. It decides nothing yet. */
    public JobRequest withThroughputBytesPerSecond(long bytes) {
        Hints other = hints.copy();
        other.throughputBytes = PutOptions.checked("throughputBytesPerSecond", bytes);
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Hints how many milliseconds of work compute a MiB of the data again; orders relocation. */
    public JobRequest withRecomputeMillisPerMib(long millis) {
        Hints other = hints.copy();
        other.recomputeMillis = PutOptions.checked("recomputeMillisPerMib", millis);
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Hints how often each byte will still be read; -1 when unknown. */
    public JobRequest withExpectedReads(int reads) {
        Hints other = hints.copy();
        other.expectedReads = (int) PutOptions.checked("expectedReads", reads);
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Hints whether the application waits on single small reads. It decides nothing yet. */
    public JobRequest withLatencySensitive(boolean latencySensitive) {
        Hints other = hints.copy();
        other.latencySensitive = latencySensitive;
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Sets whether the job's objects are deleted by their first whole read. */
    public JobRequest withDeleteAfterRead(boolean deleteAfterRead) {
        Hints other = hints.copy();
        other.deleteAfterRead = deleteAfterRead;
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Sets whether the subtree stays when the job ends. */
    public JobRequest withKeepAfterJob(boolean keepAfterJob) {
        Hints other = hints.copy();
        other.keepAfterJob = keepAfterJob;
        return new JobRequest(path, leaseMillis, limits, other);
    }

    /** Returns the root of the job's subtree. */
    public String path() {
        return path;
    }

    private JobRequest with(Limits other) {
        return new JobRequest(path, leaseMillis, other, hints);
    }

    byte[] encoded() {
        return new Encoder()
                .text("path", path)
                .number(leaseMillis)
                .number(limits.quotaBytes)
                .number(limits.names)
                .number(limits.attributeBytes)
                .number(hints.expectedBytes)
                .number(hints.throughputBytes)
                .number(hints.recomputeMillis)
                .number(hints.expectedReads)
                .flag(hints.latencySensitive)
                .flag(hints.deleteAfterRead)
                .flag(hints.keepAfterJob)
                .encoded();
    }

    /** What the subtree may hold at most; -1 for as much as there is room. */
    private static final class Limits {
        private final long quotaBytes;
        private final long names;
        private final long attributeBytes;

        private Limits(long quotaBytes, long names, long attributeBytes) {
            this.quotaBytes = quotaBytes;
            this.names = names;
            this.attributeBytes = attributeBytes;
        }
    }

    private static final class Hints {
        private long expectedBytes = -1;
        private long throughputBytes = -1;
        private long recomputeMillis = -1;
        private int expectedReads = -1;
        private boolean latencySensitive;
        private boolean deleteAfterRead;
        private boolean keepAfterJob;

        private Hints copy() {
            Hints copy = new Hints();
            copy.expectedBytes = expectedBytes;
            copy.throughputBytes = throughputBytes;
            copy.recomputeMillis = recomputeMillis;
            copy.expectedReads = expectedReads;
            copy.latencySensitive = latencySensitive;
            copy.deleteAfterRead = deleteAfterRead;
            copy.keepAfterJob = keepAfterJob;
            return copy;
        }
    }
}
