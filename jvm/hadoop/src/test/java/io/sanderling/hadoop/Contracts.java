package io.sanderling.hadoop;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.contract.AbstractContractAppendTest;
import org.apache.hadoop.fs.contract.AbstractContractBulkDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractConcatTest;
import org.apache.hadoop.fs.contract.AbstractContractContentSummaryTest;
import org.apache.hadoop.fs.contract.AbstractContractCopyFromLocalTest;
import org.apache.hadoop.fs.contract.AbstractContractCreateTest;
import org.apache.hadoop.fs.contract.AbstractContractDeleteTest;
import org.apache.hadoop.fs.contract.AbstractContractEtagTest;
import org.apache.hadoop.fs.contract.AbstractContractGetEnclosingRoot;
import org.apache.hadoop.fs.contract.AbstractContractGetFileStatusTest;
import org.apache.hadoop.fs.contract.AbstractContractMkdirTest;
import org.apache.hadoop.fs.contract.AbstractContractOpenTest;
import org.apache.hadoop.fs.contract.AbstractContractPathHandleTest;
import org.apache.hadoop.fs.contract.AbstractContractRenameTest;
import org.apache.hadoop.fs.contract.AbstractContractRootDirectoryTest;
import org.apache.hadoop.fs.contract.AbstractContractSeekTest;
import org.apache.hadoop.fs.contract.AbstractContractStreamIOStatisticsTest;
import org.apache.hadoop.fs.contract.AbstractContractUnbufferTest;
import org.apache.hadoop.fs.contract.AbstractContractVectoredReadTest;
import org.apache.hadoop.fs.contract.AbstractFSContract;
import org.junit.jupiter.params.ParameterizedClass;
import org.junit.jupiter.params.provider.MethodSource;

// Hadoop's own contract tests, each on the store. What they may expect, and what does not apply,
// is in contract/sanderling.xml; docs/HADOOP.md has the reasons.

class ContractAppendTest extends AbstractContractAppendTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractBulkDeleteTest extends AbstractContractBulkDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractConcatTest extends AbstractContractConcatTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractContentSummaryTest extends AbstractContractContentSummaryTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractCopyFromLocalTest extends AbstractContractCopyFromLocalTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractCreateTest extends AbstractContractCreateTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractDeleteTest extends AbstractContractDeleteTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractEtagTest extends AbstractContractEtagTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractGetEnclosingRootTest extends AbstractContractGetEnclosingRoot {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractGetFileStatusTest extends AbstractContractGetFileStatusTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractMkdirTest extends AbstractContractMkdirTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractOpenTest extends AbstractContractOpenTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractPathHandleTest extends AbstractContractPathHandleTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractRenameTest extends AbstractContractRenameTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractRootDirectoryTest extends AbstractContractRootDirectoryTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractSeekTest extends AbstractContractSeekTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractStreamIOStatisticsTest extends AbstractContractStreamIOStatisticsTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

class ContractUnbufferTest extends AbstractContractUnbufferTest {
    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}

@ParameterizedClass(name = "buffer-{0}")
@MethodSource("params")
class ContractVectoredReadTest extends AbstractContractVectoredReadTest {
    ContractVectoredReadTest(String buffers) {
        super(buffers);
    }

    @Override
    protected AbstractFSContract createContract(Configuration conf) {
        return new SanderlingContract(conf);
    }
}
