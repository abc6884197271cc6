package io.sanderling.hadoop;

import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

import io.sanderling.client.ObjectStat;

/** Holds the metadata of an object for Hadoop, with its version as ETag. */
final class SanderlingFileStatus extends FileStatus implements EtagSource {
    private static final long serialVersionUID = 1L;

    /** The store checks tokens, not permissions: an admitted caller may do everything. */
    private static final FsPermission OF_DIRECTORIES = new FsPermission((short) 0777);
    private static final FsPermission OF_FILES = new FsPermission((short) 0666);

    private final String etag;

    private SanderlingFileStatus(
            ObjectStat stat, Path path, boolean isDirectory, long blockBytes, String user) {
        // Reads are not counted, so the access time is unknown: 0.
        super(isDirectory ? 0 : stat.length(), isDirectory, isDirectory ? 0 : 1,
                isDirectory ? 0 : blockBytes, stat.modifiedAtMillis(), 0,
                isDirectory ? OF_DIRECTORIES : OF_FILES, user, user, path);
        etag = isDirectory ? null : Handle.version(stat);
    }

    /** Makes the status; multifiles and tables are directories to Hadoop. */
    static SanderlingFileStatus of(ObjectStat stat, Path path, long blockBytes, String user) {
        return new SanderlingFileStatus(stat, path, stat.isDirectory(), blockBytes, user);
    }

    /**
     * Returns a text that is another one after every change of the object's bytes and that a
     * rename keeps; null for a directory.
     */
    @Override
    public String getEtag() {
        return etag;
    }
}
