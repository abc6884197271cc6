package io.sanderling.hadoop;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.Options.HandleOpt;
import org.apache.hadoop.fs.PathHandle;

import io.sanderling.client.ObjectStat;

/**
 * Names a file as it was seen: its path and, unless it may change, its version. The store opens by
 * name, so a handle does not follow a file to another name.
 */
final class Handle implements PathHandle {
    private static final long serialVersionUID = 1L;
    private static final String ANY = "-";

    private final String path;
    private final String version;

    private Handle(String path, String version) {
        this.path = path;
        this.version = version;
    }

    /**
     * Makes the handle of a file.
     *
     * @throws UnsupportedOperationException for a handle that follows a renamed file
     */
    static Handle of(String path, String version, HandleOpt... options) {
        HandleOpt.Data data = HandleOpt.getOpt(HandleOpt.Data.class, options)
                .orElse(HandleOpt.changed(false));
        HandleOpt.Location place = HandleOpt.getOpt(HandleOpt.Location.class, options)
                .orElse(HandleOpt.moved(false));
        if (place.allowChange()) {
            throw new UnsupportedOperationException("sanderling opens files by name: a handle that"
                    + " follows a renamed file is not to be had");
        }
        return new Handle(path, data.allowChange() ? ANY : version);
    }

    /**
     * Reads what {@link #bytes()} made.
     *
     * @throws InvalidPathHandleException when it is another file system's
     */
    static Handle of(PathHandle handle) throws InvalidPathHandleException {
        if (handle instanceof Handle) {
            return (Handle) handle;
        }
        String text = StandardCharsets.UTF_8.decode(handle.bytes()).toString();
        int space = text.indexOf(' ');
        if (space < 1 || !text.startsWith("/", space + 1)) {
            throw new InvalidPathHandleException("this is no handle of sanderling's");
        }
        return new Handle(text.substring(space + 1), text.substring(0, space));
    }

    /** Returns a text that is another one after every change of an object's bytes. */
    static String version(ObjectStat stat) {
        return Long.toUnsignedString(stat.object(), 16) + "." + stat.length();
    }

    String path() {
        return path;
    }

    /**
     * Refuses another file than the one that was seen.
     *
     * @throws InvalidPathHandleException when its bytes are others by now
     */
    void check(ObjectStat stat) throws InvalidPathHandleException {
        if (!version.equals(ANY) && !version.equals(version(stat))) {
            throw new InvalidPathHandleException(path + " was changed since the handle was made");
        }
    }

    @Override
    public ByteBuffer bytes() {
        return ByteBuffer.wrap((version + " " + path).getBytes(StandardCharsets.UTF_8));
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof PathHandle && bytes().equals(((PathHandle) other).bytes());
    }

    @Override
    public int hashCode() {
        return bytes().hashCode();
    }

    @Override
    public String toString() {
        return "Handle(" + path + ", " + version + ")";
    }
}
