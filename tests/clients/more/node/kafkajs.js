'use strict'
// KafkaJS: https://kafka.js.org

const { randomUUID } = require('node:crypto')
const { Kafka, CompressionTypes, PartitionAssigners, logLevel } = require('kafkajs')
const { Reading, decode, encode, serve } = require('./serving')

class Driver {
  constructor (bootstrap) {
    this.bootstrap = bootstrap
    this.kafka = this.client('kafkajs')
    this.inbox = []
  }

  client (clientId) {
    // Its warnings go to standard output by default, where the answers are.
    const logCreator = () => ({ log }) => process.stderr.write(`${log.message} ${log.error ?? ''}\n`)
    return new Kafka({ clientId, brokers: [this.bootstrap], logLevel: logLevel.WARN, logCreator, retry: { retries: 8 } })
  }

  errorName (error) {
    const parts = [error, error.cause, error.errors?.[0], error.groups?.[0]?.error, error.partitions?.[0]?.error]
    return parts.find((part) => part?.type)?.type ?? error.name
  }

  async admin () {
    if (!this.connected) {
      this.connected = this.kafka.admin()
      await this.connected.connect()
    }
    return this.connected
  }

  hello () {
    return 'kafkajs'
  }

  // -- producing and reading ---------------------------------------------------------------------------------

  async produce ({ topic, codec, acks, idempotent, records }) {
    const producer = this.kafka.producer({ idempotent, maxInFlightRequests: 1, allowAutoTopicCreation: true })
    await producer.connect()
    try {
      const compression = codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
      return await send(producer, topic, records, { acks: acks === 'all' ? -1 : Number(acks), compression })
    } finally {
      await producer.disconnect()
    }
  }

  /** The client only reads as a member of a group, so a read is a group of its own. */
  async read ({ topic, isolation, first, last, quiet_ms: quietMs }) {
    const readUncommitted = isolation === 'read_uncommitted'
    const consumer = this.kafka.consumer({ groupId: randomUUID(), readUncommitted, maxWaitTimeInMs: 200 })
    await consumer.connect()
    try {
      const started = new Promise((resolve) => consumer.on(consumer.events.GROUP_JOIN, resolve))
      await consumer.subscribe({ topic, fromBeginning: true })
      const reading = new Reading(last, quietMs)
      let ready = false
      await consumer.run({
        autoCommit: false,
        eachMessage: async (taken) => { if (ready && taken.message.offset >= first[taken.partition]) reading.add(found(taken)) }
      })
      await started
      ready = true
      for (const [partition, offset] of Object.entries(first)) consumer.seek({ topic, partition: Number(partition), offset: String(offset) })
      reading.since = Date.now()
      return await reading.done()
    } finally {
      await consumer.disconnect()
    }
  }

  async offset_at ({ topic, partition, timestamp }) {
    const admin = await this.admin()
    const offsets = timestamp < 0 ? await admin.fetchTopicOffsets(topic) : await admin.fetchTopicOffsetsByTimestamp(topic, timestamp)
    const one = offsets.find((offset) => offset.partition === partition)
    return Number(timestamp === -2 ? one.low : timestamp === -1 ? one.high : one.offset)
  }

  // -- groups ------------------------------------------------------------------------------------------------

  async join ({ group, topics, session_ms: sessionTimeout, isolation, client_id: clientId }) {
    this.member = this.client(clientId).consumer({
      groupId: group,
      sessionTimeout,
      rebalanceTimeout: 10000,
      heartbeatInterval: 500,
      readUncommitted: isolation === 'read_uncommitted',
      partitionAssigners: [PartitionAssigners.roundRobin],
      maxWaitTimeInMs: 200
    })
    this.held = []
    this.next = new Map()
    this.member.on(this.member.events.GROUP_JOIN, ({ payload }) => {
      this.held = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map((one) => [topic, one]))
      this.next = new Map()
    })
    this.member.on(this.member.events.REBALANCING, () => { this.held = [] })
    await this.member.connect()
    await this.member.subscribe({ topics, fromBeginning: true })
    await this.member.run({
      autoCommit: false,
      eachMessage: async (taken) => {
        const record = found(taken)
        this.next.set(`${record.topic}\0${record.p}`, { topic: record.topic, partition: record.p, offset: String(record.o + 1) })
        this.inbox.push(record)
      }
    })
  }

  assigned () {
    return this.held
  }

  taken () {
    return this.inbox.splice(0)
  }

  async commit () {
    await this.member.commitOffsets([...this.next.values()])
  }

  async leave () {
    await this.member?.disconnect()
    this.member = undefined
  }

  async committed ({ group, partitions }) {
    const admin = await this.admin()
    const answers = []
    for (const [topic, partition] of partitions) {
      const [kept] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
      const one = kept.partitions.find((offset) => offset.partition === partition)
      answers.push([topic, partition, Number(one.offset) < 0 ? null : Number(one.offset), one.metadata ?? ''])
    }
    return answers
  }

  // -- transactions ------------------------------------------------------------------------------------------

  async txn_open ({ id, timeout_ms: transactionTimeout, codec }) {
    this.codec = codec
    this.transactional = this.kafka.producer({ transactionalId: id, transactionTimeout, idempotent: true, maxInFlightRequests: 1 })
    await this.transactional.connect()
    await (await this.transactional.transaction()).abort() // it asks for its epoch with the first transaction
  }

  async txn_begin () {
    this.transaction = await this.transactional.transaction()
  }

  txn_send ({ topic, records }) {
    const compression = this.codec === 'gzip' ? CompressionTypes.GZIP : CompressionTypes.None
    return send(this.transaction, topic, records, { acks: -1, compression })
  }

  async txn_offsets ({ group, offsets }) {
    const topics = offsets.map(([topic, partition, offset]) => ({ topic, partitions: [{ partition, offset: String(offset) }] }))
    await this.transaction.sendOffsets({ consumerGroupId: group, topics })
  }

  txn_commit () {
    return this.transaction.commit()
  }

  txn_abort () {
    return this.transaction.abort()
  }

  async txn_close () {
    await this.transactional?.disconnect()
    this.transactional = undefined
  }

  // -- administration ----------------------------------------------------------------------------------------

  async create_topic ({ topic, partitions, config }) {
    const configEntries = Object.entries(config).map(([name, value]) => ({ name, value }))
    const made = await (await this.admin()).createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] })
    if (!made) throw new Error(`topic ${topic} exists`)
  }

  async partitions ({ topic }) {
    const { topics } = await (await this.admin()).fetchTopicMetadata({ topics: [topic] })
    return topics[0].partitions.length
  }

  async add_partitions ({ topic, total }) {
    await (await this.admin()).createPartitions({ topicPartitions: [{ topic, count: total }] })
  }

  async config ({ topic }) {
    const { resources } = await (await this.admin()).describeConfigs({ resources: [{ type: 2, name: topic }] })
    return Object.fromEntries(resources[0].configEntries.map((entry) => [entry.configName, entry.configValue]))
  }

  async delete_records ({ topic, before }) {
    const partitions = Object.entries(before).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) }))
    const admin = await this.admin()
    await admin.fetchTopicOffsets(topic) // else it does not know the leaders
    await admin.deleteTopicRecords({ topic, partitions })
    return before // the client does not say what the new starts are
  }

  async delete_topic ({ topic }) {
    await (await this.admin()).deleteTopics({ topics: [topic] })
  }

  async topics () {
    return (await this.admin()).listTopics()
  }

  async groups () {
    return (await (await this.admin()).listGroups()).groups.map((group) => group.groupId)
  }

  async group ({ group }) {
    const { groups } = await (await this.admin()).describeGroups([group])
    return { state: groups[0].state, members: groups[0].members.map((member) => member.clientId).sort() }
  }

  async delete_group ({ group }) {
    await (await this.admin()).deleteGroups([group])
  }

  async reset () {
    await this.leave()
    this.inbox = []
    await this.txn_close()
  }
}

async function send (producer, topic, records, options) {
  const placed = []
  // The client makes one batch of what it is given at once, and the broker takes a megabyte of it.
  for (let start = 0, end = 0; start < records.length; start = end) {
    for (let size = 0; end < records.length && (end === start || size < 400000); end++) {
      size += records[end].v?.length ?? 0
      if (end > start && size > 400000) break
    }
    placed.push(...await sendBatch(producer, topic, records.slice(start, end), options))
  }
  return placed
}

async function sendBatch (producer, topic, records, options) {
  const messages = records.map((record) => {
    const headers = {}
    for (const [name, value] of record.h) (headers[name] ??= []).push(decode(value))
    return { key: decode(record.k), value: decode(record.v), partition: record.p, timestamp: String(record.t), headers }
  })
  const answers = await producer.send({ topic, messages, ...options })
  const next = new Map((answers ?? []).map((answer) => [answer.partition, Number(answer.baseOffset)]))
  return records.map((record) => {
    const offset = next.get(record.p) ?? -1
    next.set(record.p, offset + 1)
    return [record.p, offset]
  })
}

function found ({ topic, partition, message }) {
  const headers = Object.entries(message.headers).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((one) => [name, encode(one)]))
  return { topic, p: partition, o: Number(message.offset), t: Number(message.timestamp), k: encode(message.key), v: encode(message.value), h: headers }
}

serve(new Driver(process.argv[2]))
