package io.sanderling.hadoop;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.Path;

import io.sanderling.client.PutOptions;

/**
 * Builds what {@link SanderlingFileSystem#createFile} and its kin return. Its options, for
 * {@code opt} and {@code must}:
 *
 * <pre>
 * fs.sanderling.create.ttl              milliseconds that the file lives
 * fs.sanderling.create.storage.class    where its bytes go
 * fs.sanderling.create.expected.bytes   how many will be written, so that they are placed well
 * fs.sanderling.create.recompute        milliseconds it took to compute them: dear ones are saved
 *                                       first when a notice is too short
 * fs.sanderling.create.attribute.NAME   a text that is kept beside the bytes
 * </pre>
 */
final class CreateFile extends FSDataOutputStreamBuilder<FSDataOutputStream, CreateFile> {
    private static final String PREFIX = "fs.sanderling.create.";
    private static final String ATTRIBUTE = PREFIX + "attribute.";

    private final SanderlingFileSystem fs;

    CreateFile(SanderlingFileSystem fs, Path path) {
        super(fs, path);
        this.fs = fs;
    }

    @Override
    public CreateFile getThisBuilder() {
        return this;
    }

    /**
     * Creates the file, or opens it to append.
     *
     * @throws IllegalArgumentException for a mandatory option that is unknown, or a wrong value
     */
    @Override
    public FSDataOutputStream build() throws IOException {
        for (String key : getMandatoryKeys()) {
            if (!key.startsWith(ATTRIBUTE) && !isKnown(key)) {
                throw new IllegalArgumentException("unknown mandatory option " + key);
            }
        }
        if (getFlags().contains(CreateFlag.APPEND)) {
            return fs.append(getPath(), getBufferSize(), getProgress());
        }
        return fs.create(getPath(), getFlags().contains(CreateFlag.OVERWRITE), isRecursive(),
                options(fs.putOptions()));
    }

    private static boolean isKnown(String key) {
        switch (key) {
            case PREFIX + "ttl":
            case PREFIX + "storage.class":
            case PREFIX + "expected.bytes":
            case PREFIX + "recompute":
                return true;
            default:
                return false;
        }
    }

    private PutOptions options(PutOptions before) {
        Configuration given = getOptions();
        PutOptions made = before;
        if (given.get(PREFIX + "ttl") != null) {
            made = made.withTtlMillis(number(given, "ttl"));
        }
        if (given.get(PREFIX + "storage.class") != null) {
            made = made.withStorageClass(given.get(PREFIX + "storage.class"));
        }
        if (given.get(PREFIX + "expected.bytes") != null) {
            made = made.withExpectedBytes(number(given, "expected.bytes"));
        }
        if (given.get(PREFIX + "recompute") != null) {
            made = made.withRecomputeMillis(number(given, "recompute"));
        }
        Map<String, String> attributes = new HashMap<>();
        for (Map.Entry<String, String> entry : given.getPropsWithPrefix(ATTRIBUTE).entrySet()) {
            attributes.put(entry.getKey(), entry.getValue());
        }
        return attributes.isEmpty() ? made : made.withAttributes(attributes);
    }

    private static long number(Configuration given, String name) {
        String text = given.getTrimmed(PREFIX + name);
        try {
            return Long.parseLong(text);
        } catch (NumberFormatException e) {
            throw new IllegalArgumentException(
                    PREFIX + name + " is '" + text + "': it must be a whole number");
        }
    }
}
