package io.sanderling.client;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * Connects to a cluster and reads, writes and names objects there. Safe for many threads; calls
 * wait for their answer, at most as long as {@link ClientOptions#timeoutMillis()}. Each throws the
 * {@link SanderlingException} that docs/ERRORS.md names, and {@link ClosedException} after the
 * close. Readers, writers and jobs that were opened before the close work on until their own.
 */
public final class SanderlingClient implements AutoCloseable {
    private final Guard guard;
    private final String address;
    private final String cluster;

    private SanderlingClient(String address, long handle) throws IOException {
        this.guard = Guard.of(this, handle);
        this.address = address;
        this.cluster = Native.cluster(this, handle);
    }

    /**
     * Connects to the cluster of {@link ClusterAddress}: the context of the options, the
     * environment, the current context or {@code 127.0.0.1:7600}.
     *
     * @throws IOException as {@link #connect(String, ClientOptions)}
     */
    public static SanderlingClient connect(ClientOptions options) throws IOException {
        return connect("", options);
    }

    /**
     * Connects to the namenode at {@code host:port}; without a port it is 7600, and an empty
     * address is that of {@link ClusterAddress}.
     *
     * @throws BadRequestException when the address is wrong, or that of another server
     * @throws UnreachableException when no server listens there: start a namenode, or correct it
     * @throws AccessDeniedException when the token is missing or does not hold, or a file of the
     *     credentials cannot be read
     * @throws NativeLibraryException when the native half cannot be loaded here
     */
    public static SanderlingClient connect(String address, ClientOptions options)
            throws IOException {
        Objects.requireNonNull(options, "options");
        ClusterAddress found = ClusterAddress.resolve(address, options);
        Spans.export(options.otlp());
        byte[] encoded = found.options().encoded(found.address());
        return new SanderlingClient(found.address(), Native.connect(encoded));
    }

    /** Returns the namenode's address {@code host:port}. */
    public String address() {
        return address;
    }

    /** Returns the cluster's id in hexadecimal digits. */
    public String cluster() {
        return cluster;
    }

    /**
     * Returns the metadata of an object.
     *
     * @throws NotFoundException when no object has the name
     */
    public ObjectStat stat(String path) throws IOException {
        return new ObjectStat(call(Operation.STAT, Encoder.ofText("path", path)));
    }

    /** Returns whether an object has the name. */
    public boolean exists(String path) throws IOException {
        return call(Operation.EXISTS, Encoder.ofText("path", path)).flag();
    }

    /**
     * Returns what a directory holds, sorted by name. What changes meanwhile may be in it or not.
     *
     * @throws NotADirectoryException when it is a file
     */
    public List<ObjectStat> list(String path) throws IOException {
        return list(Operation.LIST, path);
    }

    /** Returns the same with the attributes of each. */
    public List<ObjectStat> listWithAttributes(String path) throws IOException {
        return list(Operation.LIST_WITH_ATTRIBUTES, path);
    }

    private List<ObjectStat> list(int operation, String path) throws IOException {
        Decoder decoder = call(operation, Encoder.ofText("path", path));
        int count = decoder.count();
        List<ObjectStat> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            all.add(new ObjectStat(decoder));
        }
        return all;
    }

    /**
     * Makes a directory; with {@code parents} also those above it, and it may exist already.
     *
     * @throws AlreadyExistsException when something has the name
     */
    public void makeDirectory(String path, boolean parents) throws IOException {
        call(Operation.MAKE_DIRECTORY, new Encoder().text("path", path).flag(parents).encoded());
    }

    /**
     * Makes a directory of which everything that is committed is copied to a store. With {@code
     * parents} also those above it, and it may have this store already. While more than {@code
     * backlogMax} bytes wait for the store, writers below the directory wait. With {@code adopt}
     * what an earlier cluster left in the store becomes the directory's; {@link #waitDurable} waits
     * until it is there.
     *
     * @throws BadRequestException when no datanode has such a store, or it has a directory
     */
    public void makeDurable(
            String path, String store, boolean parents, long backlogMax, boolean adopt)
            throws IOException {
        Encoder encoder = new Encoder().text("path", path).text("store", store).flag(parents);
        call(Operation.MAKE_DURABLE, encoder.number(backlogMax).flag(adopt).encoded());
    }

    /** Returns how far an object or a directory is copied; empty outside of durable directories. */
    public Optional<Durability> durability(String path) throws IOException {
        return durability(call(Operation.DURABILITY, Encoder.ofText("path", path)));
    }

    /**
     * Waits until the store has everything that was committed at or below a path before. Returns
     * nothing then; after so many milliseconds, how far it is.
     *
     * @throws BadRequestException {@code WrongKind} outside of durable directories
     */
    public Optional<Durability> waitDurable(String path, long withinMillis) throws IOException {
        Encoder encoder = new Encoder().text("path", path);
        long within = PutOptions.checked("withinMillis", withinMillis);
        return durability(call(Operation.WAIT_DURABLE, encoder.number(within).encoded()));
    }

    private static Optional<Durability> durability(Decoder decoder) {
        return decoder.flag() ? Optional.of(new Durability(decoder)) : Optional.empty();
    }

    /**
     * Moves an object, with everything in it, to another name at once.
     *
     * @throws AlreadyExistsException when the name is taken, unless both are files and
     *     {@code replace} is set
     */
    public void rename(String from, String to, boolean replace) throws IOException {
        Encoder encoder = new Encoder().text("from", from).text("to", to).flag(replace);
        call(Operation.RENAME, encoder.encoded());
    }

    /**
     * Deletes an object and returns how many went.
     *
     * @throws NotFoundException when no object has the name
     * @throws NotEmptyException for a directory that holds something, unless {@code recursive}
     */
    public long delete(String path, boolean recursive) throws IOException {
        byte[] encoded = new Encoder().text("path", path).flag(recursive).encoded();
        return call(Operation.DELETE, encoded).number();
    }

    /** Returns what a subtree holds. */
    public Usage usage(String path) throws IOException {
        return new Usage(call(Operation.USAGE, Encoder.ofText("path", path)));
    }

    /** Returns what a job holds beside bytes, and may hold. */
    public JobAccount jobAccount(long job) throws IOException {
        return new JobAccount(call(Operation.JOB_ACCOUNT, new Encoder().number(job).encoded()));
    }

    /** Returns the datanodes that are not gone. */
    public List<NodeInfo> nodes() throws IOException {
        Decoder decoder = call(Operation.NODES, new byte[0]);
        int count = decoder.count();
        List<NodeInfo> nodes = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            nodes.add(new NodeInfo(decoder));
        }
        return nodes;
    }

    /** Returns how much room the datanodes have. */
    public Capacity capacity() throws IOException {
        return new Capacity(nodes());
    }

    /**
     * Gives an object that many milliseconds to live; -1 keeps it until it is deleted.
     *
     * @throws IllegalArgumentException when it is below -1
     */
    public void setTtl(String path, long millisOrMinusOne) throws IOException {
        long millis = PutOptions.checked("millisOrMinusOne", millisOrMinusOne);
        call(Operation.SET_TTL, new Encoder().text("path", path).number(millis).encoded());
    }

    /** Sets what is kept beside an object's bytes, in place of all that was. */
    public void setAttributes(String path, Map<String, String> attributes) throws IOException {
        Encoder encoder = new Encoder().text("path", path).texts("attributes", attributes);
        call(Operation.SET_ATTRIBUTES, encoder.encoded());
    }

    /**
     * Makes one file of the blocks of others, in their order, and takes the others away, in one
     * step and without moving a byte.
     *
     * @throws BadRequestException {@code WrongKind} of a part that is no committed file, or is a
     *     value in the catalog and not the first
     */
    public void concat(List<String> parts, String to, PutOptions options) throws IOException {
        Encoder encoder = new Encoder().text("to", to).all(options.encoded());
        call(Operation.CONCAT, encoder.texts("parts", parts).encoded());
    }

    /**
     * Writes a whole object of what remains of a buffer, whose position moves to its limit. The
     * bytes must not be changed before the return.
     */
    public ObjectStat put(String path, ByteBuffer bytes, PutOptions options) throws IOException {
        byte[] encoded = new Encoder().text("path", path).all(options.encoded()).encoded();
        int length = bytes.remaining();
        byte[] stat;
        if (bytes.isDirect()) {
            stat = Native.put(this, handle(), encoded, bytes, bytes.position(), length);
        } else if (bytes.hasArray()) {
            int at = bytes.arrayOffset() + bytes.position();
            stat = Native.putArray(this, handle(), encoded, bytes.array(), at, length);
        } else {
            byte[] copy = new byte[length];
            bytes.duplicate().get(copy);
            stat = Native.putArray(this, handle(), encoded, copy, 0, length);
        }
        bytes.position(bytes.limit());
        return new ObjectStat(new Decoder(stat));
    }

    /**
     * Reads a whole object.
     *
     * @throws DataUnavailableException with exactly what is lost
     * @throws BadRequestException {@code TooLarge} when it is longer than a buffer can be
     */
    public Buffer get(String path) throws IOException {
        Object[] parts = Native.get(this, handle(), Encoder.ofText("path", path));
        return Answers.fetched(parts).get(0).buffers()[0];
    }

    /**
     * Opens an object for reading.
     *
     * @throws NotFoundException when no object has the name
     */
    public Reader open(String path) throws IOException {
        byte[] encoded = Native.open(this, handle(), Encoder.ofText("path", path));
        return new Reader(this, new Decoder(encoded));
    }

    /** Opens many objects, in the order of the paths; what fails for one is in its place. */
    public List<Opened> openMany(List<String> paths) throws IOException {
        byte[] encoded = Native.openMany(this, handle(), Encoder.ofTexts("paths", paths));
        return Answers.opened(this, encoded);
    }

    /** Begins to open many objects, as {@link #openMany}. */
    public CompletableFuture<List<Opened>> openManyAsync(List<String> paths) {
        byte[] encoded = Encoder.ofTexts("paths", paths);
        return Completions.begin(
                callId -> Native.openManyAsync(this, handle(), encoded, callId),
                parts -> Answers.opened(this, (byte[]) parts[0]));
    }

    /**
     * Reads ranges of many open objects, in the order given. What a datanode holds of all of them
     * travels together; what fails for one object is in its place.
     */
    public List<Fetched> readMany(List<Ranges> wanted) throws IOException {
        Wanted flat = new Wanted(wanted);
        Object[] parts = Native.readMany(
                flat, handle(), flat.readers, flat.counts, flat.offsets, flat.lengths);
        return Answers.fetched(parts);
    }

    /** Begins to read ranges of many open objects, as {@link #readMany}. */
    public CompletableFuture<List<Fetched>> readManyAsync(List<Ranges> wanted) {
        return Completions.begin(
                callId -> {
                    Wanted flat = new Wanted(wanted);
                    Native.readManyAsync(
                            flat,
                            handle(),
                            flat.readers,
                            flat.counts,
                            flat.offsets,
                            flat.lengths,
                            callId);
                },
                Answers::fetched);
    }

    /** Creates an object and returns its writer. */
    public Writer create(String path, PutOptions options) throws IOException {
        byte[] encoded = new Encoder().text("path", path).all(options.encoded()).encoded();
        return new Writer(path, new Decoder(Native.create(this, handle(), encoded)));
    }

    /**
     * Opens a committed file to write at its end.
     *
     * @throws SecondWriterException while another writer has it
     */
    public Writer append(String path) throws IOException {
        byte[] encoded = Encoder.ofText("path", path);
        return new Writer(path, new Decoder(Native.append(this, handle(), encoded)));
    }

    /**
     * Returns where a range of an object is now, block by block, cut to the range. Bytes that live
     * in the catalog are nowhere.
     */
    public List<BlockPlace> places(String path, long offset, long length) throws IOException {
        if (offset < 0 || length < 0) {
            throw new IllegalArgumentException("range " + offset + "+" + length + " is negative");
        }
        Encoder request = new Encoder().text("path", path).number(offset).number(length);
        return places(call(Operation.PLACES, request.encoded()));
    }

    /**
     * Returns where many objects are now, each whole as {@link #places} has it, in the order of the
     * paths and with far fewer calls than one for each. Of an object that is not there: nothing.
     */
    public List<List<BlockPlace>> placesOfAll(Collection<String> paths) throws IOException {
        Decoder decoder = call(Operation.PLACES_OF_ALL, Encoder.ofTexts("paths", paths));
        int count = decoder.count();
        List<List<BlockPlace>> all = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            all.add(places(decoder));
        }
        return all;
    }

    private static List<BlockPlace> places(Decoder decoder) {
        int count = decoder.count();
        List<BlockPlace> places = new ArrayList<>(count);
        for (int at = 0; at < count; at++) {
            places.add(new BlockPlace(decoder));
        }
        return places;
    }

    /**
     * Makes a job, whose lease is renewed from now on until it is ended or closed.
     *
     * @throws BadRequestException {@code WrongKind} when the subtree is not empty or another job's
     */
    public Job beginJob(JobRequest request) throws IOException {
        byte[] encoded = request.encoded();
        return new Job(this, new Decoder(Native.beginJob(this, handle(), encoded)));
    }

    /**
     * Returns a token that allows less than the client's own, for a subtree and that long.
     *
     * @throws BadRequestException where no token is required
     * @throws AccessDeniedException for more than the client's own token allows
     */
    public String token(String subtree, long lifetimeMillis, String subject, String... rights)
            throws IOException {
        Encoder encoder = new Encoder()
                .text("subtree", subtree)
                .number(PutOptions.checked("lifetimeMillis", lifetimeMillis))
                .text("subject", subject)
                .texts("rights", Arrays.asList(rights));
        return call(Operation.TOKEN, encoder.encoded()).text();
    }

    /** Returns what the client has counted since it connected. */
    public ClientMetrics metrics() throws IOException {
        return new ClientMetrics(call(Operation.METRICS, new byte[0]));
    }

    /** Closes the client; does nothing the second time. */
    @Override
    public void close() {
        guard.release();
    }

    private Decoder call(int operation, byte[] encoded) throws IOException {
        return new Decoder(Native.call(this, handle(), operation, encoded));
    }

    private long handle() throws ClosedException {
        long handle = guard.handle();
        if (handle == 0) {
            throw ClosedException.of("the client of " + address);
        }
        return handle;
    }
}
