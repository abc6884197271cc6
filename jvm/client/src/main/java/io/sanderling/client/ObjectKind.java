package io.sanderling.client;

/** Is the kind of an object: what it holds, and which calls it accepts. */
public enum ObjectKind {
    /** Bytes of one writer. */
    FILE,
    /** Holds objects under names. */
    DIRECTORY,
    /** A directory of files that can be read as one stream. */
    MULTIFILE,
    /** Holds key-values. */
    TABLE,
    /** A value of a table, replaced at once. */
    KEY_VALUE
}
