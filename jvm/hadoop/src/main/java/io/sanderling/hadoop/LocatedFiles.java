package io.sanderling.hadoop;

import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.NoSuchElementException;

import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.RemoteIterator;

import io.sanderling.client.BlockPlace;
import io.sanderling.client.SanderlingClient;

/**
 * Gives the entries of a listing with their places, which it requests for many files at a time. A
 * file that is deleted meanwhile is still listed, without machines, as HDFS lists it.
 */
final class LocatedFiles implements RemoteIterator<LocatedFileStatus> {
    /** As many as HDFS lists with one call by default (dfs.ls.limit). */
    private static final int FILES_AT_ONCE = 1000;

    private final String directory;
    private final FileStatus[] all;
    private final SanderlingClient client;
    private final long blockBytes;
    private final Deque<LocatedFileStatus> located = new ArrayDeque<>();
    private int next;

    LocatedFiles(
            String directory, FileStatus[] all, SanderlingClient client, long blockBytes) {
        this.directory = directory;
        this.all = all;
        this.client = client;
        this.blockBytes = blockBytes;
    }

    @Override
    public boolean hasNext() {
        return !located.isEmpty() || next < all.length;
    }

    @Override
    public LocatedFileStatus next() throws IOException {
        if (!hasNext()) {
            throw new NoSuchElementException("no more entries in " + directory);
        }
        if (located.isEmpty()) {
            locate();
        }
        return located.remove();
    }

    private void locate() throws IOException {
        int end = Math.min(next + FILES_AT_ONCE, all.length);
        List<String> paths = new ArrayList<>();
        for (int at = next; at < end; at++) {
            if (all[at].isFile()) {
                paths.add(all[at].getPath().toUri().getPath());
            }
        }
        List<List<BlockPlace>> places;
        try {
            places = client.placesOfAll(paths);
        } catch (IOException e) {
            throw Failures.reading(directory, e);
        }
        int file = 0;
        for (; next < end; next++) {
            SanderlingFileStatus status = (SanderlingFileStatus) all[next];
            long bytes = status.getLen();
            located.add(new LocatedStatus(status, status.isDirectory()
                    ? null : Places.blocks(places.get(file++), 0, bytes, blockBytes, bytes)));
        }
    }
}
