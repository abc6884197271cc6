package org.apache.spark.shuffle.sanderling;

import java.io.EOFException;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import org.apache.spark.shuffle.api.SingleSpillShuffleMapOutputWriter;

/** Takes a whole map output from the one file that Spark's writer spilled it to. */
final class SpillTransfer implements SingleSpillShuffleMapOutputWriter {
    private final MapObject object;

    SpillTransfer(MapObject object) {
        this.object = object;
    }

    @Override
    public void transferMapSpillFile(File spill, long[] lengths, long[] sparkChecksums)
            throws IOException {
        int[] checksums = new int[lengths.length];
        try (FileChannel file = FileChannel.open(spill.toPath(), StandardOpenOption.READ)) {
            for (int partition = 0; partition < lengths.length; partition++) {
                transfer(file, lengths[partition]);
                checksums[partition] = object.takeChecksum();
            }
        } catch (IOException | RuntimeException error) {
            object.close();
            throw error;
        }
        object.commit(lengths, checksums);
        Files.deleteIfExists(spill.toPath());
    }

    private void transfer(FileChannel file, long length) throws IOException {
        long rest = length;
        while (rest > 0) {
            ByteBuffer room = object.room();
            int limit = room.limit();
            room.limit((int) Math.min(limit, room.position() + rest));
            int count = file.read(room);
            room.limit(limit);
            if (count < 0) {
                throw new EOFException("the spill ends " + rest + " bytes early");
            }
            object.wrote(count);
            rest -= count;
        }
    }
}
