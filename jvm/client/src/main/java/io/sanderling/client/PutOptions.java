package io.sanderling.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;

/**
 * Holds the options of a new object. Immutable: each {@code with} method returns other options.
 * Made once and used for many objects they cost nothing.
 */
public final class PutOptions {
    private static final PutOptions DEFAULT = new PutOptions(new Fields());

    private final Fields fields;
    private final byte[] encoded;

    private PutOptions(Fields fields) {
        this.fields = fields;
        this.encoded = fields.encoded();
    }

    /** Returns the options of a listed file that must not exist yet, in a directory that does. */
    public static PutOptions create() {
        return DEFAULT;
    }

    /** Sets whether an object of the name is replaced, at the commit and at once. */
    public PutOptions withReplace(boolean replace) {
        Fields other = fields.copy();
        other.replace = replace;
        return new PutOptions(other);
    }

    /** Sets whether missing directories above the object are made. */
    public PutOptions withParents(boolean parents) {
        Fields other = fields.copy();
        other.parents = parents;
        return new PutOptions(other);
    }

    /** Sets whether the directory's listing shows the object; one not shown is cheaper. */
    public PutOptions withListed(boolean listed) {
        Fields other = fields.copy();
        other.listed = listed;
        return new PutOptions(other);
    }

    /**
     * Gives the object that many milliseconds to live; -1 keeps it until it is deleted.
     *
     * @throws IllegalArgumentException when it is below -1
     */
    public PutOptions withTtlMillis(long millis) {
        Fields other = fields.copy();
        other.ttlMillis = checked("ttlMillis", millis);
        return new PutOptions(other);
    }

    /**
     * Sets where its blocks go: {@code dram} or {@code disk}, then {@code :fall-through},
     * {@code :wait} or {@code :refuse}. An unknown one is refused by the call that uses it.
     */
    public PutOptions withStorageClass(String storageClass) {
        Fields other = fields.copy();
        other.storageClass = Objects.requireNonNull(storageClass, "storageClass");
        return new PutOptions(other);
    }

    /** Requests its blocks near a host, or near an object when it starts with a slash. */
    public PutOptions withAffinity(String affinity) {
        Fields other = fields.copy();
        other.affinity = Objects.requireNonNull(affinity, "affinity");
        return new PutOptions(other);
    }

    /**
     * Sets how many bytes will be written, so that they are placed well; -1 when unknown.
     *
     * @throws IllegalArgumentException when it is below -1
     */
    public PutOptions withExpectedBytes(long bytes) {
        Fields other = fields.copy();
        other.expectedBytes = checked("expectedBytes", bytes);
        return new PutOptions(other);
    }

    /** Sets the texts that are kept beside the bytes. */
    public PutOptions withAttributes(Map<String, String> attributes) {
        Fields other = fields.copy();
        other.attributes = Collections.unmodifiableMap(new LinkedHashMap<>(attributes));
        return new PutOptions(other);
    }

    /** Sets whether a small value may live in the catalog; without, it can be part of a concat. */
    public PutOptions withInlineAllowed(boolean inlineAllowed) {
        Fields other = fields.copy();
        other.inlineAllowed = inlineAllowed;
        return new PutOptions(other);
    }

    /** Sets whether the first whole {@link SanderlingClient#get} deletes the object. */
    public PutOptions withDeleteAfterRead(boolean deleteAfterRead) {
        Fields other = fields.copy();
        other.deleteAfterRead = deleteAfterRead;
        return new PutOptions(other);
    }

    /**
     * Sets how many milliseconds it took to compute the object, so that a relocation without enough
     * time saves the most expensive bytes first; -1 when unknown.
     *
     * @throws IllegalArgumentException when it is below -1
     */
    public PutOptions withRecomputeMillis(long millis) {
        Fields other = fields.copy();
        other.recomputeMillis = checked("recomputeMillis", millis);
        return new PutOptions(other);
    }

    /** Sets whether nothing may have the name when the object takes it, even when replacing. */
    public PutOptions withIfAbsent(boolean ifAbsent) {
        Fields other = fields.copy();
        other.condition = ifAbsent ? 0 : -1;
        return new PutOptions(other);
    }

    /**
     * Sets which object, by {@link ObjectStat#object()}, must have the name when this takes it.
     *
     * @throws IllegalArgumentException when no object can have that id
     */
    public PutOptions withIfObject(long object) {
        if (object == 0 || object == -1) {
            throw new IllegalArgumentException("no object has the id " + object);
        }
        Fields other = fields.copy();
        other.condition = object;
        return new PutOptions(other);
    }

    /** Returns the options as the native half reads them. */
    byte[] encoded() {
        return encoded;
    }

    static long checked(String what, long value) {
        if (value < -1) {
            throw new IllegalArgumentException(what + " is negative: " + value);
        }
        return value;
    }

    private static final class Fields {
        private boolean replace;
        private boolean parents;
        private boolean listed = true;
        private boolean inlineAllowed = true;
        private boolean deleteAfterRead;
        private long ttlMillis = -1;
        private long expectedBytes = -1;
        private long recomputeMillis = -1;
        /** What must be under the name: -1 anything, 0 nothing, else the object of that id. */
        private long condition = -1;
        private String storageClass = "";
        private String affinity = "";
        private Map<String, String> attributes = Collections.emptyMap();

        private Fields copy() {
            Fields copy = new Fields();
            copy.replace = replace;
            copy.parents = parents;
            copy.listed = listed;
            copy.inlineAllowed = inlineAllowed;
            copy.deleteAfterRead = deleteAfterRead;
            copy.ttlMillis = ttlMillis;
            copy.expectedBytes = expectedBytes;
            copy.recomputeMillis = recomputeMillis;
            copy.condition = condition;
            copy.storageClass = storageClass;
            copy.affinity = affinity;
            copy.attributes = attributes;
            return copy;
        }

        private byte[] encoded() {
            return new Encoder()
                    .flag(replace)
                    .flag(parents)
                    .flag(listed)
                    .flag(inlineAllowed)
                    .flag(deleteAfterRead)
                    .number(ttlMillis)
                    .number(expectedBytes)
                    .number(recomputeMillis)
                    .number(condition)
                    .text("storageClass", storageClass)
                    .text("affinity", affinity)
                    .texts("attributes", attributes)
                    .encoded();
        }
    }
}
