package io.sanderling.client;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;

/** Holds the metadata of an object, in the order of bindings/native/schema.txt. */
public final class ObjectStat {
    private static final ObjectKind[] KINDS = ObjectKind.values();

    private final String path;
    private final long object;
    private final ObjectKind kind;
    private final long length;
    private final long lostBytes;
    private final boolean isSealed;
    private final long modifiedAtMillis;
    private final long createdAtMillis;
    private final long expiresInMillis;
    private final long blocks;
    private final long entries;
    private final long job;
    private final String storageClass;
    private final boolean isListed;
    private final boolean isDeletedAfterRead;
    private final Map<String, String> attributes;

    ObjectStat(Decoder decoder) {
        path = decoder.text();
        object = decoder.number();
        kind = KINDS[decoder.small()];
        length = decoder.number();
        lostBytes = decoder.number();
        isSealed = decoder.flag();
        isListed = decoder.flag();
        isDeletedAfterRead = decoder.flag();
        storageClass = decoder.text();
        createdAtMillis = decoder.number();
        modifiedAtMillis = decoder.number();
        expiresInMillis = decoder.number();
        blocks = decoder.number();
        entries = decoder.number();
        job = decoder.number();
        attributes = texts(decoder);
    }

    private static Map<String, String> texts(Decoder decoder) {
        int count = decoder.count();
        if (count == 0) {
            return Collections.emptyMap();
        }
        Map<String, String> texts = new LinkedHashMap<>();
        for (int at = 0; at < count; at++) {
            texts.put(decoder.text(), decoder.text());
        }
        return Collections.unmodifiableMap(texts);
    }

    /** Returns the path. */
    public String path() {
        return path;
    }

    /** Returns the last component of the path; of the root, the empty text. */
    public String name() {
        return path.substring(path.lastIndexOf('/') + 1);
    }

    /** Returns the object's id, which a rename keeps and a replacement changes. */
    public long object() {
        return object;
    }

    /** Returns what it is. */
    public ObjectKind kind() {
        return kind;
    }

    /** Returns whether it holds other objects: a directory, multifile or table. */
    public boolean isDirectory() {
        return kind != ObjectKind.FILE && kind != ObjectKind.KEY_VALUE;
    }

    /** Returns the published bytes; of a multifile or table the sum of its parts. */
    public long length() {
        return length;
    }

    /** Returns how many of the bytes were declared lost. */
    public long lostBytes() {
        return lostBytes;
    }

    /** Returns whether its writer has committed it. Directories always are. */
    public boolean isSealed() {
        return isSealed;
    }

    /** Returns when its bytes or entries last changed, in milliseconds since 1970. */
    public long modifiedAtMillis() {
        return modifiedAtMillis;
    }

    /** Returns when it was created, in milliseconds since 1970; -1 in a listing. */
    public long createdAtMillis() {
        return createdAtMillis;
    }

    /** Returns the milliseconds left by its TTL; -1 without one, and in a listing. */
    public long expiresInMillis() {
        return expiresInMillis;
    }

    /** Returns how many blocks with bytes it has; -1 in a listing. */
    public long blocks() {
        return blocks;
    }

    /** Returns how many entries a directory has; -1 in a listing. */
    public long entries() {
        return entries;
    }

    /** Returns the id of the job it belongs to; -1 without one, and in a listing. */
    public long job() {
        return job;
    }

    /** Returns where its blocks go, such as {@code dram:fall-through}; empty in a listing. */
    public String storageClass() {
        return storageClass;
    }

    /** Returns whether its directory's listing shows it. */
    public boolean isListed() {
        return isListed;
    }

    /** Returns whether the first whole {@link SanderlingClient#get} deletes it. */
    public boolean isDeletedAfterRead() {
        return isDeletedAfterRead;
    }

    /** Returns the texts kept beside its bytes; empty in a listing without attributes. */
    public Map<String, String> attributes() {
        return attributes;
    }

    @Override
    public String toString() {
        return path + " (" + kind + ", " + length + " bytes)";
    }
}
