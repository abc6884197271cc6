package io.sanderling.hadoop;

import java.io.IOException;
import java.net.URI;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.contract.AbstractFSContract;

/** What Hadoop's contract tests may expect: contract/sanderling.xml has it. */
final class SanderlingContract extends AbstractFSContract {
    SanderlingContract(Configuration conf) {
        super(conf);
        addConfResource("contract/sanderling.xml");
    }

    @Override
    public FileSystem getTestFileSystem() throws IOException {
        return FileSystem.get(URI.create(Cluster.shared().uri()), getConf());
    }

    @Override
    public String getScheme() {
        return SanderlingFileSystem.SCHEME;
    }

    @Override
    public Path getTestPath() {
        return new Path(Cluster.shared().uri() + "/contract");
    }
}
