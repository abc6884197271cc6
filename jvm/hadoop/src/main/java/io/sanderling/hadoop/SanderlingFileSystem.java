package io.sanderling.hadoop;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.ContentSummary;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FsStatus;
import org.apache.hadoop.fs.InvalidPathHandleException;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.PathHandle;
import org.apache.hadoop.fs.PathIsNotEmptyDirectoryException;
import org.apache.hadoop.fs.QuotaUsage;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.impl.OpenFileParameters;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSource;
import org.apache.hadoop.fs.statistics.StoreStatisticNames;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsBinding;
import org.apache.hadoop.fs.statistics.impl.IOStatisticsStore;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.util.LambdaUtils;
import org.apache.hadoop.util.Progressable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import io.sanderling.client.Capacity;
import io.sanderling.client.ObjectStat;
import io.sanderling.client.PutOptions;
import io.sanderling.client.Reader;
import io.sanderling.client.SanderlingClient;
import io.sanderling.client.Usage;
import io.sanderling.client.Writer;

/**
 * Serves {@code sanderling://host:port/path} to Hadoop, and {@code sanderling:///path} with
 * {@code fs.sanderling.address} set. Names, renames and deletes are changed in one step each, and
 * what one client did all others see. What the store does not keep (permissions, owners, times,
 * checksums of files) is not pretended; docs/HADOOP.md has the table.
 */
public final class SanderlingFileSystem extends FileSystem implements IOStatisticsSource {
    /** The scheme of the URIs. */
    public static final String SCHEME = "sanderling";

    /** The default port of {@code sanderling namenode}. */
    private static final int DEFAULT_PORT = 7600;

    /** What Hadoop puts before the names of attributes that applications choose. */
    private static final String USER = "user.";

    private static final Logger LOG = LoggerFactory.getLogger(SanderlingFileSystem.class);

    private final IOStatisticsStore counters = IOStatisticsBinding.iostatisticsStore()
            .withCounters(StoreStatisticNames.OP_APPEND, StoreStatisticNames.OP_CREATE,
                    StoreStatisticNames.OP_DELETE, StoreStatisticNames.OP_GET_FILE_STATUS,
                    StoreStatisticNames.OP_LIST_STATUS, StoreStatisticNames.OP_MKDIRS,
                    StoreStatisticNames.OP_OPEN, StoreStatisticNames.OP_RENAME)
            .build();
    private final AtomicBoolean hasLoggedWhatIsNotKept = new AtomicBoolean();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private URI uri;
    private Settings settings;
    private SanderlingClient client;
    private PutOptions putOptions;
    private String user;
    private Path workingDirectory;

    /**
     * Connects to the namenode that the URI or {@code fs.sanderling.address} names, or else to that
     * of {@link io.sanderling.client.ClusterAddress}.
     *
     * @throws IOException with one sentence when the configuration is wrong, no server answers, the
     *         token is refused or the native library cannot be loaded
     */
    @Override
    public void initialize(URI name, Configuration conf) throws IOException {
        super.initialize(name, conf);
        setConf(conf);
        settings = Settings.of(name, conf);
        String authority = name.getAuthority();
        uri = URI.create(SCHEME + "://" + (authority == null ? "/" : authority));
        user = UserGroupInformation.getCurrentUser().getShortUserName();
        workingDirectory = getHomeDirectory();
        putOptions = PutOptions.create().withTtlMillis(settings.ttlMillis)
                .withStorageClass(settings.storageClass);
        try {
            client = SharedClients.take(settings);
        } catch (IOException e) {
            throw Failures.connecting(settings.address, e);
        }
    }

    @Override
    public String getScheme() {
        return SCHEME;
    }

    @Override
    public URI getUri() {
        return uri;
    }

    /** Returns the namenode's usual port, that of a URI without one. */
    @Override
    protected int getDefaultPort() {
        return DEFAULT_PORT;
    }

    /** Returns null: there are no delegation tokens; a token of the store identifies the caller. */
    @Override
    public String getCanonicalServiceName() {
        return null;
    }

    @Override
    public Path getHomeDirectory() {
        return qualified("/user/" + user);
    }

    @Override
    public void setWorkingDirectory(Path directory) {
        workingDirectory = makeQualified(directory);
    }

    @Override
    public Path getWorkingDirectory() {
        return workingDirectory;
    }

    @Override
    protected Path getInitialWorkingDirectory() {
        return getHomeDirectory();
    }

    @Override
    public long getDefaultBlockSize() {
        return settings.blockBytes;
    }

    @Override
    public void close() throws IOException {
        if (isClosed.compareAndSet(false, true)) {
            try {
                // Deletes what was to be deleted on exit, so the client is needed still.
                super.close();
            } finally {
                if (client != null) {
                    SharedClients.giveBack(settings);
                }
            }
        }
    }

    // Reading.

    @Override
    public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
        return open(name(path), ReadPolicy.ADAPTIVE, null);
    }

    @Override
    public FSDataInputStream open(PathHandle handle, int bufferBytes) throws IOException {
        Handle ours = Handle.of(handle);
        try {
            return open(ours.path(), ReadPolicy.ADAPTIVE, ours);
        } catch (FileNotFoundException e) {
            InvalidPathHandleException gone = new InvalidPathHandleException(e.getMessage());
            gone.initCause(e);
            throw gone;
        }
    }

    @Override
    protected PathHandle createPathHandle(FileStatus status, Options.HandleOpt... options) {
        if (!(status instanceof SanderlingFileStatus) || status.isDirectory()) {
            throw new UnsupportedOperationException("only files of sanderling's have handles");
        }
        String version = ((SanderlingFileStatus) status).getEtag();
        return Handle.of(name(status.getPath()), version, options);
    }

    @Override
    protected CompletableFuture<FSDataInputStream> openFileWithOptions(
            Path path, OpenFileParameters parameters) throws IOException {
        OpenOptions.check(parameters);
        ReadPolicy policy = OpenOptions.policy(parameters);
        String name = name(path);
        return LambdaUtils.eval(new CompletableFuture<>(), () -> open(name, policy, null));
    }

    private FSDataInputStream open(String path, ReadPolicy policy, Handle expected)
            throws IOException {
        read(StoreStatisticNames.OP_OPEN);
        Reader reader;
        try {
            reader = client.open(path);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
        if (expected != null) {
            try {
                expected.check(reader.stat());
            } catch (InvalidPathHandleException e) {
                reader.close();
                throw e;
            }
        }
        return new FSDataInputStream(new SanderlingInputStream(
                path, reader, policy, settings.readAheadBytes, statistics));
    }

    // Writing.

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite,
            int bufferBytes, short replication, long blockBytes, Progressable progress)
            throws IOException {
        return create(path, overwrite, true, putOptions);
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, EnumSet<CreateFlag> flags,
            int bufferBytes, short replication, long blockBytes, Progressable progress,
            Options.ChecksumOpt checksum) throws IOException {
        return create(path, flags, true);
    }

    @Override
    public FSDataOutputStream createNonRecursive(Path path, FsPermission permission,
            EnumSet<CreateFlag> flags, int bufferBytes, short replication, long blockBytes,
            Progressable progress) throws IOException {
        return create(path, flags, false);
    }

    @Override
    public CreateFile createFile(Path path) {
        return new CreateFile(this, path).create().overwrite(true);
    }

    @Override
    public CreateFile appendFile(Path path) {
        return new CreateFile(this, path).append();
    }

    @Override
    public FSDataOutputStream append(Path path, int bufferBytes, Progressable progress)
            throws IOException {
        written(StoreStatisticNames.OP_APPEND);
        String name = name(path);
        try {
            Writer writer = client.append(name);
            return new FSDataOutputStream(
                    new SanderlingOutputStream(name, writer, false), statistics, writer.position());
        } catch (IOException e) {
            throw Failures.reading(name, e);
        }
    }

    private FSDataOutputStream create(Path path, EnumSet<CreateFlag> flags, boolean parents)
            throws IOException {
        if (flags.contains(CreateFlag.APPEND) && exists(path)) {
            return append(path, 0, null);
        }
        return create(path, flags.contains(CreateFlag.OVERWRITE), parents, putOptions);
    }

    /** Creates a file with options of the store's. */
    FSDataOutputStream create(Path path, boolean overwrite, boolean parents, PutOptions options)
            throws IOException {
        written(StoreStatisticNames.OP_CREATE);
        String name = name(path);
        PutOptions made = options.withParents(parents);
        try {
            return new FSDataOutputStream(new SanderlingOutputStream(
                    name, client.create(name, made), false), statistics);
        } catch (IOException e) {
            if (!overwrite || !Failures.name(e).equals("Exists")) {
                throw Failures.writing(name, e);
            }
        }
        try {
            // Not deleted and created anew: readers have the old file until the new one is whole.
            return new FSDataOutputStream(new SanderlingOutputStream(
                    name, client.create(name, made.withReplace(true)), true), statistics);
        } catch (IOException e) {
            throw Failures.writing(name, e);
        }
    }

    /** Returns the options of files that are created without any of their own. */
    PutOptions putOptions() {
        return putOptions;
    }

    @Override
    public void concat(Path target, Path[] sources) throws IOException {
        written(StoreStatisticNames.OP_CREATE);
        if (sources.length == 0) {
            throw new IllegalArgumentException("concat to " + target + " needs files to add");
        }
        List<String> parts = new ArrayList<>();
        String to = name(target);
        parts.add(to);
        for (Path source : sources) {
            parts.add(name(source));
        }
        try {
            PutOptions options = PutOptions.create().withReplace(true)
                    .withAttributes(client.stat(to).attributes());
            client.concat(parts, to, options);
        } catch (IOException e) {
            throw Failures.reading(to, e);
        }
    }

    // Names.

    /**
     * Renames as HDFS does: into a directory that exists, onto nothing that exists. Each try is
     * one step in the namenode: no other file is overwritten between a look and the rename.
     */
    @Override
    public boolean rename(Path from, Path to) throws IOException {
        written(StoreStatisticNames.OP_RENAME);
        String source = name(from);
        String target = name(to);
        if (source.equals("/")) {
            return false;
        }
        if (source.equals(target)) {
            return isFileThatExists(source);
        }
        try {
            client.rename(source, target, false);
            return true;
        } catch (IOException e) {
            return renameRefused(source, target, e);
        }
    }

    private boolean renameRefused(String source, String target, IOException refusal)
            throws IOException {
        switch (Failures.name(refusal)) {
            case "Exists":
            case "IsADirectory":
                return renameInto(source, target);
            case "NotFound":
            case "IntoItself":
                LOG.debug("rename of {} to {} is refused", source, target, refusal);
                return false;
            default:
                throw Failures.writing(target, refusal);
        }
    }

    private boolean renameInto(String source, String directory) throws IOException {
        try {
            if (!client.stat(directory).isDirectory()) {
                return false;
            }
            String name = source.substring(source.lastIndexOf('/'));
            client.rename(source, directory.equals("/") ? name : directory + name, false);
            return true;
        } catch (IOException e) {
            switch (Failures.name(e)) {
                case "Exists":
                case "NotFound":
                case "IntoItself":
                    return false;
                default:
                    throw Failures.writing(directory, e);
            }
        }
    }

    private boolean isFileThatExists(String path) throws IOException {
        try {
            return !client.stat(path).isDirectory();
        } catch (IOException e) {
            if (Failures.name(e).equals("NotFound")) {
                return false;
            }
            throw Failures.reading(path, e);
        }
    }

    /**
     * Renames onto a name that must be free, or replaces what has it: a file at once. An empty
     * directory is deleted first, and stays deleted if something else takes its name meanwhile.
     */
    @Override
    @SuppressWarnings("deprecation")
    protected void rename(Path from, Path to, Options.Rename... options) throws IOException {
        written(StoreStatisticNames.OP_RENAME);
        String source = name(from);
        String target = name(to);
        boolean overwrite = false;
        for (Options.Rename option : options) {
            overwrite |= option == Options.Rename.OVERWRITE;
        }
        try {
            if (source.equals(target)) {
                client.stat(source);
                throw new FileAlreadyExistsException(
                        "the source " + from + " and the target " + to + " are the same");
            }
            try {
                client.rename(source, target, overwrite);
            } catch (IOException e) {
                if (!overwrite || !Failures.name(e).equals("Exists")) {
                    throw e;
                }
                replaceDirectory(source, target);
            }
        } catch (IOException e) {
            throw Failures.writing(target, e);
        }
    }

    private void replaceDirectory(String source, String target) throws IOException {
        boolean isDirectory = client.stat(source).isDirectory();
        if (isDirectory != client.stat(target).isDirectory()) {
            throw new IOException("cannot rename " + source + " to " + target
                    + ": one is a directory, the other a file");
        }
        client.delete(target, false);
        client.rename(source, target, false);
    }

    @Override
    public boolean delete(Path path, boolean recursive) throws IOException {
        written(StoreStatisticNames.OP_DELETE);
        String name = name(path);
        if (name.equals("/")) {
            return deleteRoot(recursive);
        }
        try {
            client.delete(name, recursive);
            return true;
        } catch (IOException e) {
            switch (Failures.name(e)) {
                case "NotFound":
                case "NotADirectory":
                    return false;
                default:
                    throw Failures.reading(name, e);
            }
        }
    }

    /** Refuses, as HDFS does: the root is always there, and is not emptied by one slip. */
    private boolean deleteRoot(boolean recursive) throws IOException {
        if (!recursive && !list("/").isEmpty()) {
            throw new PathIsNotEmptyDirectoryException("/");
        }
        LOG.warn("the root directory cannot be deleted: delete what is in it, name by name");
        return false;
    }

    @Override
    public boolean mkdirs(Path path, FsPermission permission) throws IOException {
        written(StoreStatisticNames.OP_MKDIRS);
        String name = name(path);
        try {
            client.makeDirectory(name, true);
            return true;
        } catch (IOException e) {
            // A multifile or table is a directory to Hadoop, and is there.
            if (Failures.name(e).equals("Exists") && client.stat(name).isDirectory()) {
                return true;
            }
            throw Failures.writing(name, e);
        }
    }

    // Metadata.

    @Override
    public FileStatus getFileStatus(Path path) throws IOException {
        read(StoreStatisticNames.OP_GET_FILE_STATUS);
        return status(stat(name(path)));
    }

    @Override
    public FileStatus[] listStatus(Path path) throws IOException {
        read(StoreStatisticNames.OP_LIST_STATUS);
        List<ObjectStat> found = list(name(path));
        FileStatus[] all = new FileStatus[found.size()];
        for (int at = 0; at < all.length; at++) {
            all[at] = status(found.get(at));
        }
        return all;
    }

    @Override
    protected RemoteIterator<LocatedFileStatus> listLocatedStatus(Path path, PathFilter filter)
            throws IOException {
        FileStatus[] all = listStatus(path, filter);
        return new LocatedFiles(name(path), all, client, settings.blockBytes);
    }

    /**
     * Returns the machines with most of each of Hadoop's blocks. A block with lost bytes shows that
     * it is corrupt.
     */
    @Override
    public BlockLocation[] getFileBlockLocations(FileStatus file, long start, long length)
            throws IOException {
        if (file == null) {
            return null;
        }
        if (start < 0 || length < 0) {
            throw new IllegalArgumentException("range " + start + "+" + length + " is negative");
        }
        if (file.getLen() <= start || length == 0) {
            return new BlockLocation[0];
        }
        String path = name(file.getPath());
        long block = settings.blockBytes;
        long from = start / block * block;
        long to = length > file.getLen() - start ? file.getLen() : start + length;
        long end = Math.min(file.getLen(), (to - 1) / block * block + block);
        try {
            return Places.blocks(
                    client.places(path, from, end - from), start, to, block, file.getLen());
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    @Override
    public ContentSummary getContentSummary(Path path) throws IOException {
        String name = name(path);
        try {
            Usage usage = client.usage(name);
            return new ContentSummary.Builder().length(usage.bytes()).fileCount(usage.files())
                    .directoryCount(usage.directories()).spaceConsumed(usage.bytes())
                    .quota(-1).spaceQuota(-1).build();
        } catch (IOException e) {
            throw Failures.reading(name, e);
        }
    }

    @Override
    public QuotaUsage getQuotaUsage(Path path) throws IOException {
        return getContentSummary(path);
    }

    @Override
    public FsStatus getStatus(Path path) throws IOException {
        try {
            Capacity capacity = client.capacity();
            return new FsStatus(
                    capacity.capacityBytes(), capacity.usedBytes(), capacity.freeBytes());
        } catch (IOException e) {
            throw Failures.reading("/", e);
        }
    }

    /** Returns whether the store keeps that many copies: it keeps one, and moves it in time. */
    @Override
    public boolean setReplication(Path path, short replication) throws IOException {
        return replication == 1 && !stat(name(path)).isDirectory();
    }

    @Override
    public boolean truncate(Path path, long length) throws IOException {
        throw new UnsupportedOperationException("sanderling does not cut files: write "
                + path + " again, what has its name is replaced at once");
    }

    /** Does nothing to a path that exists: the store checks tokens, not permissions. */
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
        notKept(path, "permissions");
    }

    /** Does nothing to a path that exists: the store keeps no owners. */
    @Override
    public void setOwner(Path path, String owner, String group) throws IOException {
        notKept(path, "owners");
    }

    /** Does nothing to a path that exists: its time is when its bytes changed last. */
    @Override
    public void setTimes(Path path, long modified, long accessed) throws IOException {
        notKept(path, "times of the caller's choice");
    }

    private void notKept(Path path, String what) throws IOException {
        stat(name(path));
        if (hasLoggedWhatIsNotKept.compareAndSet(false, true)) {
            LOG.info("sanderling keeps no {}: {} stays as it is; this is said once", what, path);
        }
    }

    /** Returns what is kept beside a file's bytes, each under {@code user.NAME}. */
    @Override
    public Map<String, byte[]> getXAttrs(Path path) throws IOException {
        Map<String, byte[]> all = new TreeMap<>();
        stat(name(path)).attributes().forEach(
                (name, text) -> all.put(USER + name, text.getBytes(StandardCharsets.UTF_8)));
        return all;
    }

    @Override
    public Map<String, byte[]> getXAttrs(Path path, List<String> names) throws IOException {
        Map<String, byte[]> all = getXAttrs(path);
        for (String name : names) {
            if (!all.containsKey(name)) {
                throw new IOException(path + " has no attribute " + name);
            }
        }
        all.keySet().retainAll(names);
        return all;
    }

    @Override
    public byte[] getXAttr(Path path, String name) throws IOException {
        return getXAttrs(path, Collections.singletonList(name)).get(name);
    }

    @Override
    public List<String> listXAttrs(Path path) throws IOException {
        return new ArrayList<>(getXAttrs(path).keySet());
    }

    @Override
    public boolean hasPathCapability(Path path, String capability) throws IOException {
        if (capability == null || capability.isEmpty()) {
            throw new IllegalArgumentException("the capability is empty");
        }
        name(path);
        switch (capability.toLowerCase(Locale.ROOT)) {
            case CommonPathCapabilities.FS_APPEND:
            case CommonPathCapabilities.FS_CONCAT:
            case CommonPathCapabilities.FS_PATHHANDLES:
            case CommonPathCapabilities.ABORTABLE_STREAM:
            case CommonPathCapabilities.ETAGS_AVAILABLE:
            case CommonPathCapabilities.ETAGS_PRESERVED_IN_RENAME:
                return true;
            default:
                return super.hasPathCapability(path, capability);
        }
    }

    @Override
    public IOStatistics getIOStatistics() {
        return counters;
    }

    @Override
    public String toString() {
        return "SanderlingFileSystem(" + uri + ", namenode "
                + (settings == null ? "none" : settings.address) + ")";
    }

    private ObjectStat stat(String path) throws IOException {
        try {
            return client.stat(path);
        } catch (IOException e) {
            throw Failures.reading(path, e);
        }
    }

    /** Lists a directory; of a file, the file. */
    private List<ObjectStat> list(String path) throws IOException {
        try {
            return client.list(path);
        } catch (IOException e) {
            if (!Failures.name(e).equals("NotADirectory")) {
                throw Failures.reading(path, e);
            }
        }
        List<ObjectStat> file = new ArrayList<>();
        file.add(stat(path));
        return file;
    }

    private FileStatus status(ObjectStat stat) {
        return SanderlingFileStatus.of(stat, qualified(stat.path()), settings.blockBytes, user);
    }

    /** Makes a path of a name as it is: parsing it would take a colon for a scheme's. */
    private Path qualified(String name) {
        return new Path(SCHEME, uri.getAuthority(), name);
    }

    private String name(Path path) {
        checkPath(path);
        return makeQualified(path).toUri().getPath();
    }

    private void read(String operation) {
        statistics.incrementReadOps(1);
        counters.incrementCounter(operation);
    }

    private void written(String operation) {
        statistics.incrementWriteOps(1);
        counters.incrementCounter(operation);
    }
}
