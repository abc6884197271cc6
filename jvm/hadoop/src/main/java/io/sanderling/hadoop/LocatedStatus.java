package io.sanderling.hadoop;

import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.EtagSource;
import org.apache.hadoop.fs.LocatedFileStatus;

/** Holds a status with the machines that have the bytes. */
final class LocatedStatus extends LocatedFileStatus implements EtagSource {
    private static final long serialVersionUID = 1L;

    private final String etag;

    LocatedStatus(SanderlingFileStatus status, BlockLocation[] locations) {
        super(status, locations);
        etag = status.getEtag();
    }

    /** Returns the same as the status's. */
    @Override
    public String getEtag() {
        return etag;
    }
}
