package io.sanderling.hadoop;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FCStatisticsBaseTest;
import org.apache.hadoop.fs.FSMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileContextCreateMkdirBaseTest;
import org.apache.hadoop.fs.FileContextMainOperationsBaseTest;
import org.apache.hadoop.fs.FileContextURIBase;
import org.apache.hadoop.fs.FileContextUtilBase;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileSystem.Statistics;
import org.apache.hadoop.fs.FileSystemContractBaseTest;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Disabled;
import org.junit.jupiter.api.Test;

// Hadoop's older suites of FileSystem and FileContext, each on the store.

/** Makes what the suites run on. */
final class Bases {
    static final String NO_PERMISSIONS = "tokens say who may do what, not permissions";

    private Bases() {
    }

    static Configuration configuration() {
        Configuration conf = new Configuration();
        conf.set("fs.AbstractFileSystem.sanderling.impl", Sanderling.class.getName());
        conf.set("fs.defaultFS", Cluster.shared().uri());
        return conf;
    }

    /** Returns what runs MapReduce in this process, two tasks at a time. */
    static Configuration local() {
        Configuration conf = new Configuration();
        conf.set("mapreduce.framework.name", "local");
        conf.set("mapreduce.jobtracker.staging.root.dir", "/staging");
        conf.setInt("mapreduce.task.io.sort.mb", 64);
        conf.setInt("mapreduce.local.map.tasks.maximum", 2);
        conf.setInt("mapreduce.job.maps", 2);
        // Looks at a job that is done at once, not five seconds later.
        conf.setInt("mapreduce.client.completion.pollinterval", 50);
        conf.setInt("mapreduce.client.progressmonitor.pollinterval", 50);
        return conf;
    }

    static FileContext context() throws Exception {
        return FileContext.getFileContext(URI.create(Cluster.shared().uri()), configuration());
    }

    static FileSystem fileSystem() throws Exception {
        return FileSystem.newInstance(URI.create(Cluster.shared().uri()), configuration());
    }
}

class FileSystemBaseTest extends FileSystemContractBaseTest {
    @BeforeEach
    void connect() throws Exception {
        fs = Bases.fileSystem();
    }

    @Override
    @Test
    @Disabled(Bases.NO_PERMISSIONS)
    public void testMkdirsWithUmask() {
    }
}

class FileSystemMainOperationsTest extends FSMainOperationsBaseTest {
    FileSystemMainOperationsTest() {
        super("/main-operations");
    }

    @Override
    protected FileSystem createFileSystem() throws Exception {
        return Bases.fileSystem();
    }

    @Override
    @Test
    @Disabled(Bases.NO_PERMISSIONS)
    public void testListStatusThrowsExceptionForUnreadableDir() {
    }

    @Override
    @Test
    @Disabled(Bases.NO_PERMISSIONS)
    public void testGlobStatusThrowsExceptionForUnreadableDir() {
    }
}

class FileContextMainOperationsTest extends FileContextMainOperationsBaseTest {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc = Bases.context();
        super.setUp();
    }

    @Override
    protected boolean listCorruptedBlocksSupported() {
        return false;
    }
}

class FileContextUriTest extends FileContextURIBase {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc1 = Bases.context();
        fc2 = Bases.context();
        super.setUp();
    }
}

class FileContextCreateMkdirTest extends FileContextCreateMkdirBaseTest {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc = Bases.context();
        super.setUp();
    }
}

class FileContextUtilTest extends FileContextUtilBase {
    @Override
    @BeforeEach
    public void setUp() throws Exception {
        fc = Bases.context();
        super.setUp();
    }
}

class FileContextStatisticsTest extends FCStatisticsBaseTest {
    @BeforeEach
    void connect() throws Exception {
        fc = Bases.context();
        fc.mkdir(fileContextTestHelper.getTestRootPath(fc), FileContext.DEFAULT_PERM, true);
        FileContext.clearStatistics();
    }

    @Override
    protected void verifyReadBytes(Statistics statistics) {
        // One block read on, and one at a position.
        assertEquals(2L * blockSize, statistics.getBytesRead());
    }

    @Override
    protected void verifyWrittenBytes(Statistics statistics) {
        assertEquals(blockSize, statistics.getBytesWritten());
    }

    @Override
    protected URI getFsUri() {
        return new Path(Cluster.shared().uri() + "/").toUri();
    }
}
